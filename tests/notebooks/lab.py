"""A real JupyterLab on the loopback address, and a notebook in it, driven in headless Chromium by playwright.

The server has its own settings, workspaces, signatures and notebooks, so nothing of the user's JupyterLab is read or
changed, and every notebook is untrusted until it is run.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import LIMIT

SETTINGS = {
    # All cells in the page, also those out of sight.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}
WIDTH, HEIGHT = 1280, 1100


@contextmanager
def running_lab(folder: Path, workspace: Path) -> Iterator[str]:
    """Runs JupyterLab on a folder of notebooks, whose kernels use a workspace of the course. Yields its address with token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jupyter = folder.parent / f"{folder.name}-jupyter"
    for name, values in SETTINGS.items():
        file = jupyter / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf8")
    token = secrets.token_hex(16)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True", "--ServerApp.log_level=WARN",
    ]  # fmt: skip
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    folders |= {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "python",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {variable: str(jupyter / subfolder) for variable, subfolder in folders.items()}
    environment["COURSE_WORKSPACE"] = str(workspace)
    with open(jupyter / "log.txt", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_until(lambda: process.poll() is not None or _answers(port, token), lambda: "JupyterLab did not start")
        assert process.poll() is None, (jupyter / "log.txt").read_text(errors="replace")[-2000:]
        yield f"http://127.0.0.1:{port}/doc/tree/{{name}}?token={token}&reset"
    finally:
        process.terminate()
        process.wait(LIMIT)


def _answers(port: int, token: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/status?token={token}", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _wait_until(condition: Callable[[], Any], problem: Callable[[], str], seconds: float = LIMIT) -> Any:
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, problem()
        time.sleep(0.2)
    return value


# What the page is asked. `app` is JupyterLab's own object, exposed by --LabApp.expose_app_in_browser.
PANEL = "const panel = window.jupyterapp?.shell?.currentWidget; const model = panel?.content?.model;"
STATE = f"""() => {{ {PANEL}
    const code = [...model.cells].filter(cell => cell.type === 'code' && cell.sharedModel.source.trim());
    const outputs = code.flatMap((cell, at) => cell.sharedModel.outputs.map(output => ({{at, ...output}})));
    return {{
        kernel: panel.sessionContext.session?.kernel?.status,
        waiting: code.filter(cell => cell.executionCount === null).length,
        errors: outputs.filter(output => output.output_type === 'error').map(output => output.ename + ': ' + output.evalue),
        bars: [...document.querySelectorAll('.jp-OutputArea .widget-hbox')].filter(
            box => box.offsetParent && box.querySelector('.widget-hprogress')).map(box => box.textContent),
    }};
}}"""
# Records every text that a progress bar shows from now on.
RECORD = """() => {
    window.seen = [];
    const look = () => document.querySelectorAll('.jp-OutputArea .widget-hbox').forEach(box => {
        const text = box.textContent.replace(/\\u2007/g, ' ').trim();
        if (text && window.seen.at(-1) !== text) window.seen.push(text);
    });
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


class Notebook:
    """An open notebook."""

    def __init__(self, page: Any, address: str, name: str) -> None:
        self.page, self.name = page, name
        page.set_default_timeout(LIMIT * 1000)
        page.goto(address.format(name=f"{name}.ipynb"))
        page.wait_for_function(f"() => {{ {PANEL} return panel?.sessionContext?.isReady && model?.cells.length }}")
        _wait_until(lambda: self.state()["kernel"] == "idle", lambda: f"{name}: the kernel is {self.state()['kernel']}")

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.page.evaluate(STATE)
        return state

    def run_all(self) -> None:
        """Clears all outputs and runs all cells by JupyterLab's menu. Raises AssertionError at an error output."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
        self.page.evaluate(RECORD)
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

        def ended() -> bool:
            state = self.state()
            assert state["errors"] == [], f"{self.name}: {state['errors']}"
            return state["kernel"] == "idle" and state["waiting"] == 0

        # A notebook may build its products first.
        _wait_until(ended, lambda: f"{self.name}: not done: {self.state()}", 2 * LIMIT)

    def bar_texts(self) -> list[str]:
        """All texts of progress bars since `run_all` began."""
        texts: list[str] = self.page.evaluate("() => window.seen")
        return texts

    def run_cell(self, number: int, source: str) -> Any:
        """Types a source into a cell as a learner does, runs it, and returns the locator of its output."""
        cell = self.page.locator(".jp-Notebook .jp-Cell").nth(number)
        cell.scroll_into_view_if_needed()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Control+Enter")
        _wait_until(lambda: self.state()["kernel"] == "idle" and not self.state()["waiting"], lambda: str(self.state()))
        return cell.locator(".jp-OutputArea-output")

    def cell_number(self, part: str) -> int:
        """The number of the first code cell with a text in its source."""
        sources: list[str] = self.page.evaluate(
            f"() => {{ {PANEL} return [...model.cells].map(cell => cell.type === 'code' ? cell.sharedModel.source : '') }}"
        )
        return next(number for number, source in enumerate(sources) if part in source)

    def screenshots(self, folder: Path) -> list[Path]:
        """Writes the whole notebook as images of the size of a window, from top to bottom."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.png"):
            old.unlink()
        scroller = self.page.locator(".jp-WindowedPanel-outer").first
        height = scroller.evaluate("element => element.scrollHeight")
        step = scroller.evaluate("element => element.clientHeight") - 40
        paths = []
        for number, top in enumerate(range(0, height, step)):
            scroller.evaluate("(element, top) => element.scrollTo(0, top)", top)
            paths.append(folder / f"{number:02}.png")
            self.page.screenshot(path=paths[-1])
        return paths

    def too_wide(self) -> list[str]:
        """The first characters of each code cell and output that scrolls sideways."""
        found: list[str] = self.page.evaluate(
            """() => [...document.querySelectorAll('.jp-CodeCell .cm-scroller, .jp-OutputArea-output')]
                .filter(each => each.scrollWidth > each.clientWidth + 2 && each.offsetParent)
                .map(each => each.textContent.trim().slice(0, 60))"""
        )
        return found

    def close(self) -> None:
        self.page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")

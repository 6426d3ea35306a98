"""`course demo` in headless Chromium: typing, sliding, pressing and reading, wide and narrow, in English and Japanese."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from course_lib.checkpoints import aozora
from course_lib.paths import REPOSITORY
from course_lib.prefix.files import beside
from course_lib.world.genres import documents
from course_lib.world.tasks import TITLED, title

from tests.browser import chromium
from tests.waiting import LIMIT

pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[demo]")
SCREENSHOTS = REPOSITORY / "output/demo"
WIDE, NARROW = 1280, 400
# Tokens of Label, as the page shows them: one line with the token, one with its probability.
TOKENS = "() => document.querySelector('#next')?.innerText?.match(/\\d+%/g) ?? []"
LONG = "ある町に、" * 400
# The models of the tabs behind the first one, as `make course` builds them.
BUILD = "from course_lib.serving.demo_models import Models; models = Models(); models.gpt2, models.tasks, models.gptsan"
# Twenty times a second, what the columns of the first tab show.
WATCH = """() => {
    window.seen = [];
    const columns = [...document.querySelectorAll('[id^=written-] textarea')];
    setInterval(() => seen.push(columns.map(column => column.value)), 50);
}"""


@pytest.fixture(scope="module", params=["en", "ja"])
def served(request: Any, tmp_path_factory: Any, shared_workspace: Path) -> Iterator[tuple[str, str]]:
    """The language, and the address of `course demo` with the session's products; it ends without a word on Ctrl-C."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"COURSE_WORKSPACE": str(shared_workspace), "COURSE_LANG": request.param}
    subprocess.run([sys.executable, "-c", BUILD], env=environment, check=True)
    log = tmp_path_factory.mktemp("demo") / "log.txt"
    command = [sys.executable, "-m", "course_lib.cli", "demo", "--quiet", "--port", port]
    with log.open("w") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout
    url = f"http://127.0.0.1:{port}/"
    try:
        assert any(url in line for line in process.stdout), log.read_text()
        yield request.param, url
        second = subprocess.run(command, env=environment, capture_output=True, text=True)
        said = {"en": f"--port: {port} is taken", "ja": f"--port：{port}は使用中です"}[request.param]
        assert second.returncode == 2 and said in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130) and "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.timeout(2 * LIMIT)
def test_typing_sliding_pressing_reading(browser: Any, served: tuple[str, str], width: int) -> None:
    language, url = served
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(60_000)
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(url)

    def picture(name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{language}-{width}-{name}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

    def value(name: str) -> str:
        return str(page.locator(f"#{name} textarea").input_value())

    def slide(name: str, number: float) -> None:
        slider = page.locator(f"#{name} input[type=range]")
        low, high, step = (float(slider.get_attribute(part)) for part in ("min", "max", "step"))
        slider.focus()
        page.keyboard.press("Home")
        for _ in range(round((min(number, high) - low) / step)):
            page.keyboard.press("ArrowRight")
        assert float(slider.input_value()) == pytest.approx(number)

    # The model and its writers: a column each, next tokens below it, and texts that grow side by side.
    columns = 1 + len(beside(aozora.folder()))
    percents = (
        "() => [...document.querySelectorAll('[id^=next-]')].map(one => one.innerText.match(/\\d+%/g)?.join() ?? '')"
    )
    page.wait_for_function(f"() => ({percents})().filter(Boolean).length === {columns}")
    before = page.evaluate(percents)
    page.locator("#prompt textarea").fill("昔々、")
    page.wait_for_function(f"before => String(({percents})()) !== String(before)", arg=before)
    assert page.get_by_text("25.3 M" if language == "en" else "2530万").count() == 1
    page.evaluate(WATCH)
    page.locator("#go").click()
    page.wait_for_function("() => seen.length > 40 && seen.at(-1)[0] && String(seen.at(-1)) === String(seen.at(-40))")
    seen = page.evaluate("seen")
    assert len(seen[-1]) == columns and all(text.startswith("昔々、") and len(text) > 20 for text in seen[-1])
    for growing in zip(*seen):
        steps = [text for text in dict.fromkeys(growing) if text]
        assert len(steps) > 3 and "\ufffd" not in "".join(steps)
        assert all(longer.startswith(shorter) for shorter, longer in zip(steps, steps[1:]))
    picture("writers")

    page.get_by_role("tab").nth(1).click()
    page.wait_for_function(f"() => ({TOKENS})().length > 1")
    # Typing: the probabilities and the verdict follow. Every tale about a town goes on with its child.
    text = page.locator("#text textarea")
    text.fill("")
    text.press_sequentially("ある町に、健太という")
    page.wait_for_function("() => document.querySelector('#next')?.innerText.includes('子ども')")
    # Sliding: top-k 1 leaves one token, and a high temperature spreads the probabilities.
    slide("top-k", 1)
    page.wait_for_function(f"() => String(({TOKENS})()) === '100%'")
    slide("top-k", 0)
    slide("temperature", 2)
    page.wait_for_function(f"() => parseInt(({TOKENS})()[0]) < 100")
    slide("temperature", 0.5)
    page.locator("#continue").click()
    page.wait_for_function("() => document.querySelector('#text textarea').value.length > 40")
    tale, weather = {"en": ("tale", "weather"), "ja": ("物語", "天気予報")}[language]
    includes = "([box, said]) => document.querySelector(box).innerText.toLowerCase().includes(said)"
    page.wait_for_function(includes, arg=["#checker", tale])
    assert value("text").startswith("ある町に、健太という子ども")
    picture("write")
    text.fill("吾輩は猫である。" + value("text"))
    said = {"en": "not of the world", "ja": "小さな世界の文ではない"}[language]
    page.wait_for_function(includes, arg=["#checker", said])
    # A text that is too long is refused in one line, and stays.
    text.fill(LONG)
    page.locator("#continue").click()
    page.get_by_text({"en": "leave 0 of", "ja": "個のうち0個で"}[language]).wait_for()
    assert value("text") == LONG
    text.fill("")
    page.wait_for_function(f"() => ({TOKENS})().length > 1")

    page.get_by_role("tab").nth(2).click()
    for genre in ("recipe", "weather"):
        slide(genre, 1)
        before = value("story")
        page.locator("#write").click()
        page.wait_for_function(
            "before => !['', before].includes(document.querySelector('#story textarea').value)", arg=before
        )
        slide(genre, 0)
    page.wait_for_function(includes, arg=["#genre", weather])
    picture("genres")

    page.get_by_role("tab").nth(3).click()
    given = value("given")
    page.locator("#ask").click()
    page.wait_for_function("() => document.querySelector('#answer-2 textarea').value")
    base, plain = value("answer-0"), value("answer-1")
    assert given.endswith("行きました。") and plain.endswith("行った。") and base not in (plain, "")
    # A title needs a whole text.
    story = next(iter(documents(1, seed=5, genres=TITLED)))
    page.locator("#given textarea").fill(story.text)
    page.locator("#ask").click()
    page.wait_for_function("title => document.querySelector('#answer-2 textarea').value === title", arg=title(story))
    picture("tasks")

    assert {"en": "Course demo", "ja": "モデルを試すページ"}[language] in page.title()
    outside = [each for each in requests if not each.startswith((url, "data:", "blob:"))]
    assert (outside, problems) == ([], [])
    page.close()

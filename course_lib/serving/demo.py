"""A page to play with models, on 127.0.0.1: aozora and its writers side by side, and the profile's. Needs gradio."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import gradio

from course_lib.checkpoints import aozora
from course_lib.corpus.products import has_world
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.language.words import tr, tr_noop
from course_lib.serving.chat import Chat
from course_lib.serving.demo_models import Models
from course_lib.serving.writers import Writers
from course_lib.settings import profiles
from course_lib.world.check import check

# A beginning that each writer continues in its own way.
PROMPT = "その夜、"
# What the bundled writers learned; others are shown by their name alone.
WRITERS = {"dowa": tr_noop("fairy tales"), "tantei": tr_noop("detective stories")}
LAST_SEED = (1 << 32) - 1
START = "ある町に、"
# A sentence of a letter, for the task `plain`; `title` has learned whole texts.
LETTER = "友だちの結衣と一緒に、水族館へ行きました。"
# Fonts of the reader's system, so that the page loads nothing from elsewhere.
FONT = ("system-ui", "Noto Sans CJK JP", "sans-serif")
HEAD = tr_noop("Three models of the course. They know the small world, nothing else.")
HEAD_OF_OTHERS = tr_noop("Three models of the course.")
GENRES = (
    tr_noop("tale"),
    tr_noop("weather"),
    tr_noop("recipe"),
    tr_noop("match"),
    tr_noop("diary"),
    tr_noop("letter"),
)  # `tr` gets them


def with_findings(text: str) -> list[tuple[str, str | None]]:
    """Return the sentences of a text, each with what the checker has against it, and then the genre."""
    found: list[tuple[str, str | None]] = []
    known: set[str] = set()
    verdict = check(text)
    for at, (sentence, reading) in enumerate(zip(verdict.sentences, verdict.readings, strict=True)):
        # The order of a text that is not complete yet is no contradiction.
        new = {*check("".join(verdict.sentences[: at + 1])).contradictions} - known - {"plot"}
        known |= new
        faults = [tr("contradiction: {name}", name=name) for name in sorted(new)]
        foreign = reading is None and sentence.endswith("。")
        found.append((sentence, tr("not of the world") if foreign else ", ".join(faults) or None))
    return [*found, (" ", tr("genre: {name}", name=tr(verdict.genre)))] if verdict.genre else found


def page(writers: Writers, models: Models, chat: Chat | None = None) -> gradio.Blocks:
    """Return the page; with a published model, it has a tab to talk to it."""
    blocks: gradio.Blocks = gradio.Blocks(title=tr("Course demo"), analytics_enabled=False)
    with blocks:
        gradio.Markdown(f"# {tr('Course demo')}")
        _writers(blocks, writers)
        if missing := models.missing():
            message = tr_noop(
                "The models of the profile `{profile}` are missing or stale: {names}. `make course` builds those of "
                "the small world in minutes, `course run` those of any profile; then start `course demo` again."
            )
            with gradio.Tab(", ".join((tr("Write"), tr("Genres"), tr("Tasks")))):
                gradio.Markdown(tr(message, profile=profiles.current_name(), names=", ".join(missing)))
        else:
            _profile(models)
        if chat:
            _chat(chat)
    return blocks


def _writers(blocks: gradio.Blocks, writers: Writers) -> None:
    """Add the tab of the model aozora: a column without a prefix, and one for each writer."""
    own = writers.generator.completed()
    names = [tr("without a prefix")]
    names += [f"{name}: {tr(WRITERS[name])}" if name in WRITERS else name for name in writers.prefixes]

    def settings(temperature: float, top_p: float, seed: int | None) -> GenerateConfig:
        return GenerateConfig(strategy="sampling", temperature=temperature, top_p=top_p, seed=seed)

    # By component: gradio takes a list of one value for the value of one component.
    def write(text: str, *given: Any) -> Iterator[dict[gradio.Textbox, str]]:
        for texts in writers.write(text, settings(*given)):
            yield dict(zip(written, texts, strict=True))

    def next_tokens(text: str, *given: Any) -> dict[gradio.Label, dict[str, float]]:
        return dict(zip(chances, writers.next_tokens(text, settings(*given)), strict=True))

    with gradio.Tab(aozora.NAME):
        gradio.Markdown(aozora.about(writers.folder))
        text = gradio.Textbox(PROMPT, label=tr("Text"), lines=2, elem_id="prompt")
        with gradio.Row():
            wide: dict[str, Any] = {"min_width": 280}
            heat = gradio.Slider(0.1, 2, own.temperature, step=0.05, label=tr("Temperature"), elem_id="heat", **wide)
            label = tr("Top-p (of the {top_k} likeliest tokens)", top_k=own.top_k)
            top_p = gradio.Slider(0.05, 1, own.top_p, step=0.05, label=label, elem_id="top-p", **wide)
            label = tr("Seed (empty: a new one each time)")
            seed = gradio.Number(0, label=label, precision=0, minimum=0, maximum=LAST_SEED, elem_id="seed", **wide)
        go = gradio.Button(tr("Write"), variant="primary", elem_id="go")
        written: list[gradio.Textbox] = []
        chances: list[gradio.Label] = []
        with gradio.Row():
            for at, name in enumerate(names):
                with gradio.Column(min_width=280):
                    written.append(gradio.Textbox(label=name, lines=12, max_lines=60, elem_id=f"written-{at}"))
                    label = tr("Next token")
                    chances.append(gradio.Label(label=label, show_heading=False, elem_id=f"next-{at}"))
    inputs = [text, heat, top_p, seed]
    go.click(_shown_growing(write), inputs, written)
    triggers = [blocks.load, text.change, heat.change, top_p.change]
    gradio.on(triggers, _shown(next_tokens), inputs, chances, show_progress="hidden", trigger_mode="always_last")


def _profile(models: Models) -> None:
    """Add the tabs of the profile's models."""
    world = has_world()
    head = tr(HEAD if world else HEAD_OF_OTHERS)
    # The genre is no fault, so its label is green.
    colors = {tr("genre: {name}", name=tr(name)): "green" for name in models.genres}
    checker = partial(gradio.HighlightedText, label=tr("The checker"), color_map=colors, visible=world)
    with gradio.Tab(tr("Write")) as writing:
        gradio.Markdown(head)
        with gradio.Row():
            with gradio.Column(min_width=280):
                text = gradio.Textbox(START, label=tr("Text"), lines=5, elem_id="text")
                heat = gradio.Slider(0.1, 2, 1, step=0.1, label=tr("Temperature"), elem_id="temperature")
                top_k = gradio.Slider(0, 50, 0, step=1, label=tr("Top-k (0: all tokens)"), elem_id="top-k")
                go = gradio.Button(tr("Continue"), variant="primary", elem_id="continue")
            with gradio.Column(min_width=280):
                chances = gradio.Label(label=tr("Next token"), show_heading=False, elem_id="next")
                facts = checker(elem_id="checker")
    with gradio.Tab(tr("Genres")):
        gradio.Markdown(head)
        with gradio.Row():
            with gradio.Column(min_width=280):
                sliders = [gradio.Slider(0, 1, 0, step=0.05, label=tr(name), elem_id=name) for name in models.genres]
                warmth = gradio.Slider(0.1, 2, 0.8, step=0.1, label=tr("Temperature"), elem_id="warmth")
                write = gradio.Button(tr("Write"), variant="primary", elem_id="write")
            with gradio.Column(min_width=280):
                story = gradio.Textbox(label=tr("GPTSAN writes"), lines=8, elem_id="story")
                genre = checker(elem_id="genre")
    with gradio.Tab(tr("Tasks")):
        gradio.Markdown(head)
        given = gradio.Textbox(LETTER, label=tr("Text"), lines=4, elem_id="given")
        ask = gradio.Button(tr("Ask"), variant="primary", elem_id="ask")
        with gradio.Row():
            names = [tr("without a prefix"), *models.task_names]
            boxes = [gradio.Textbox(label=name, lines=4, min_width=200, elem_id=f"answer-{at}")
                     for at, name in enumerate(names)]  # fmt: skip
    live: dict[str, Any] = {"show_progress": "hidden", "trigger_mode": "always_last"}
    # The first tab is open when the page is; these models are loaded when theirs are.
    triggers = [writing.select, text.change, heat.change, top_k.change]
    gradio.on(triggers, _shown(models.next_tokens), [text, heat, top_k], chances, **live)
    if world:
        gradio.on([writing.select, text.change], with_findings, text, facts, **live)
        story.change(with_findings, story, genre, **live)
    go.click(_shown(models.continue_text), [text, heat, top_k], text)
    write.click(_shown(lambda *given: models.written([*given[:-1]], given[-1])), [*sliders, warmth], story)
    ask.click(_shown(models.answers), given, boxes)


def _chat(chat: Chat) -> None:
    """Add the tab to talk to a published model."""

    def talk(text: str, before: list[dict[str, Any]], heat: float) -> Iterator[str]:
        yield from chat.answer([*before, {"role": "user", "content": text}], heat)

    with gradio.Tab(tr("Chat")):
        gradio.Markdown(tr("{name}, a published model: no part of it was trained here.", name=chat.name))
        cool = gradio.Slider(0, 2, 0.2, step=0.1, label=tr("Temperature"), elem_id="cool", render=False)
        # Without the button that would share the conversation on the internet.
        shows = gradio.Chatbot(label=tr("Chat"), buttons=["copy"])
        gradio.ChatInterface(talk, chatbot=shows, additional_inputs=[cool], api_visibility="private")


def _shown(function: Any) -> Any:
    """Return the function with an error of the library as a line on the page."""

    def answer(*given: Any) -> Any:
        try:
            return function(*given)
        except CourseError as error:
            return _told(error)

    return answer


def _shown_growing(function: Any) -> Any:
    """Return the generator function with an error of the library as a line on the page."""

    def answer(*given: Any) -> Any:
        try:
            yield from function(*given)
        except CourseError as error:
            yield _told(error)

    return answer


def _told(error: CourseError) -> Any:
    """Show an error as a line on the page, and return what leaves the page as it is."""
    # Not gradio.Error, which would lie over the text that the reader has typed.
    gradio.Warning(str(error), title=tr("Not possible"))
    return gradio.skip()


def serve(port: int, chat: str = "", ready: Any = print) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C; `ready` gets its address. Raises UsageError if the port is in use."""
    blocks = page(Writers(aozora.folder()), Models(), Chat(chat) if chat else None)
    theme = gradio.themes.Base(font=FONT, font_mono=("monospace",))
    try:
        _, url, _ = blocks.launch(
            server_name="127.0.0.1", server_port=port, share=False, quiet=True, prevent_thread_lock=True, theme=theme,
            footer_links=[], ssr_mode=False, favicon_path=None,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(tr("--port: {port} is taken; give another one", port=port)) from error
    ready(url)
    try:
        blocks.block_thread()
    finally:
        blocks.close(verbose=False)

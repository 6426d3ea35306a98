"""A page to play with the profile's models, on 127.0.0.1: writing, genres, tasks. Needs gradio (extra `demo`)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, cast

import gradio
import torch
from torch import Tensor

from course_lib.corpus.products import has_world
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.gptsan import config as gptsan_config
from course_lib.gptsan import products as gptsan
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.language.words import tr, tr_noop
from course_lib.prefix import files
from course_lib.prefix import products as prefix
from course_lib.prefix.config import FILE
from course_lib.pretrain import text_codec
from course_lib.serving.chat import Chat
from course_lib.world.check import check

# Next tokens that are shown, and tokens of one continuation.
SHOWN, LENGTH = 8, 80
# The page's controls decide, not the model's own settings: the next tokens that it shows know no penalty.
WRITING = GenerateConfig(
    strategy="sampling", max_new_tokens=LENGTH, top_p=1.0, repetition_penalty=1.0, no_repeat_ngram_size=0, seed=None
)
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


class Mixed(GPTSanGenerator):
    """A GPTSAN whose spout gets shares of several classes instead of one."""

    shares: Tensor

    def spout(self, wanted: int | str, texts: int, rng: torch.Generator) -> Tensor | None:
        """Return the shares as the input to the spout: [1, d_spout]."""
        return self.shares

    def write(self, weights: list[float], temperature: float) -> str:
        """Return a new text. The weights, one a class, are divided by their sum; without any, all count alike."""
        shares = torch.tensor(weights) if any(weights) else torch.ones(len(weights))
        unused = self.config.d_spout - len(weights)
        self.shares = torch.cat([shares / shares.sum(), torch.zeros(unused)])[None].to(self.device)
        how = gptsan_config.GenerateConfig(seed=None, max_new_tokens=3 * LENGTH, top_k=0, temperature=temperature)
        return self.continue_text("", how)[0].strip()


class Models:
    """The models of the profile, built if they are missing; one request at a time."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.gpt2 = Generator(prefix.base().path() / "model", text_codec.load)
        self.tasks = {name: files.read(prefix.task(name).path() / FILE) for name in prefix.task_settings()}
        self.gptsan = cast(Mixed, Mixed.open(gptsan.TUNED.path() / gptsan.MODEL))
        self.genres = gptsan.class_names()

    def next_tokens(self, text: str, temperature: float, top_k: int) -> dict[str, float]:
        """Return the likeliest next tokens of a text and their probabilities; top_k 0: of all tokens."""
        model = self.gpt2
        ids = [*model.codec.opening, *model.codec.encode(text)] or [model.begin]
        limit = getattr(model.model.config, "max_position_embeddings", None) or len(ids)
        with self.lock, torch.inference_mode():
            read = torch.tensor([ids[-limit:]], device=model.device)
            logits = model.model(read, attention_mask=torch.ones_like(read)).logits[0, -1].float()
        likeliest = logits[: len(model.codec)].topk(top_k or len(model.codec))
        chances = (likeliest.values / temperature).softmax(-1)[:SHOWN].tolist()
        return dict(zip([self._name(ids, each) for each in likeliest.indices[:SHOWN].tolist()], chances, strict=True))

    def _name(self, ids: list[int], token: int) -> str:
        """Return what a token adds to a text, or its name, for the end of a text and the bytes of a character."""
        added = "" if token in self.gpt2.ends else self.gpt2.codec.continuation(ids, [token])
        return added.strip("\ufffd") or str(self.gpt2.codec.tokenizer.convert_ids_to_tokens(token))

    def continue_text(self, text: str, temperature: float, top_k: int) -> str:
        """Return a text with a sampled continuation."""
        how = replace(WRITING, top_k=top_k, temperature=temperature)
        with self.lock:
            return self.gpt2.generate([text], self._fitting(text, how))[0][0].text

    def answers(self, text: str) -> list[str]:
        """Return the greedy continuation of the base, and the answer with the prefix of each task."""
        how = self._fitting(text, replace(WRITING, strategy="greedy"))
        with self.lock:
            rows = self.gpt2.generate([text] * (1 + len(self.tasks)), how, [None, *self.tasks.values()])
        return [row[0].continuation.strip() for row in rows]

    def written(self, weights: list[float], temperature: float) -> str:
        """Return a text of GPTSAN for these weights of the genres."""
        with self.lock:
            return self.gptsan.write(weights, temperature)

    def _fitting(self, text: str, how: GenerateConfig) -> GenerateConfig:
        """Return the settings with a length for which the positions suffice, if the text leaves any."""
        limit = getattr(self.gpt2.model.config, "max_position_embeddings", None)
        longest = max((len(one.values) for one in self.tasks.values()), default=0)
        codec = self.gpt2.codec
        left = limit - longest - (len(codec.opening) + len(codec.encode(text)) or 1) if limit else LENGTH
        return replace(how, max_new_tokens=max(1, min(LENGTH, left)))


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


def page(models: Models, chat: Chat | None = None) -> gradio.Blocks:
    """Return the page; with a published model, it has a tab to talk to it."""

    def shown(function: Any) -> Any:
        """Show an error of the library as a line on the page."""

        def answer(*given: Any) -> Any:
            try:
                return function(*given)
            except CourseError as error:
                # Not gradio.Error, which would lie over the text that the reader has typed.
                gradio.Warning(str(error), title=tr("Not possible"))
                return gradio.skip()

        return answer

    world = has_world()
    # The genre is no fault, so its label is green.
    colors = {tr("genre: {name}", name=tr(name)): "green" for name in models.genres}
    checker = partial(gradio.HighlightedText, label=tr("The checker"), color_map=colors, visible=world)
    blocks: gradio.Blocks = gradio.Blocks(title=tr("Course demo"), analytics_enabled=False)
    with blocks:
        gradio.Markdown(f"# {tr('Course demo')}\n{tr(HEAD if world else HEAD_OF_OTHERS)}")
        with gradio.Tab(tr("Write")), gradio.Row():
            with gradio.Column(min_width=280):
                text = gradio.Textbox(START, label=tr("Text"), lines=5, elem_id="text")
                heat = gradio.Slider(0.1, 2, 1, step=0.1, label=tr("Temperature"), elem_id="temperature")
                top_k = gradio.Slider(0, 50, 0, step=1, label=tr("Top-k (0: all tokens)"), elem_id="top-k")
                go = gradio.Button(tr("Continue"), variant="primary", elem_id="continue")
            with gradio.Column(min_width=280):
                chances = gradio.Label(label=tr("Next token"), show_heading=False, elem_id="next")
                facts = checker(elem_id="checker")
        with gradio.Tab(tr("Genres")), gradio.Row():
            with gradio.Column(min_width=280):
                sliders = [gradio.Slider(0, 1, 0, step=0.05, label=tr(name), elem_id=name) for name in models.genres]
                warmth = gradio.Slider(0.1, 2, 0.8, step=0.1, label=tr("Temperature"), elem_id="warmth")
                write = gradio.Button(tr("Write"), variant="primary", elem_id="write")
            with gradio.Column(min_width=280):
                story = gradio.Textbox(label=tr("GPTSAN writes"), lines=8, elem_id="story")
                genre = checker(elem_id="genre")
        with gradio.Tab(tr("Tasks")):
            given = gradio.Textbox(LETTER, label=tr("Text"), lines=4, elem_id="given")
            ask = gradio.Button(tr("Ask"), variant="primary", elem_id="ask")
            with gradio.Row():
                names = [tr("without a prefix"), *models.tasks]
                boxes = [gradio.Textbox(label=name, lines=4, min_width=200, elem_id=f"answer-{at}")
                         for at, name in enumerate(names)]  # fmt: skip
        if chat:

            def talk(text: str, before: list[dict[str, Any]], heat: float) -> Iterator[str]:
                yield from chat.answer([*before, {"role": "user", "content": text}], heat)

            with gradio.Tab(tr("Chat")):
                gradio.Markdown(tr("{name}, a published model: no part of it was trained here.", name=chat.name))
                cool = gradio.Slider(0, 2, 0.2, step=0.1, label=tr("Temperature"), elem_id="cool", render=False)
                # Without the button that would share the conversation on the internet.
                shows = gradio.Chatbot(label=tr("Chat"), buttons=["copy"])
                gradio.ChatInterface(talk, chatbot=shows, additional_inputs=[cool], api_visibility="private")
        looked = {"fn": shown(models.next_tokens), "inputs": [text, heat, top_k], "outputs": chances}
        for event in (blocks.load, text.change, heat.change, top_k.change):
            event(**looked, show_progress="hidden", trigger_mode="always_last")
        if world:
            changes = (blocks.load, text, facts), (text.change, text, facts), (story.change, story, genre)
            for event, source, target in changes:
                event(with_findings, source, target, show_progress="hidden", trigger_mode="always_last")
        go.click(shown(models.continue_text), [text, heat, top_k], text)
        write.click(shown(lambda *given: models.written([*given[:-1]], given[-1])), [*sliders, warmth], story)
        ask.click(shown(models.answers), given, boxes)
    return blocks


def serve(port: int, chat: str = "", ready: Any = print) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C; `ready` gets its address. Raises UsageError if the port is in use."""
    blocks = page(Models(), Chat(chat) if chat else None)
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

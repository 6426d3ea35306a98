"""The road of the course, from raw text to a served model, with the reader's place on it."""

from course_lib.notebooks.drawing import GREY, MUTED, ORANGE, PLAIN, SMALL, Box, Canvas, Drawing
from course_lib.errors import UsageError
from course_lib.language.words import mark, tr

# Notebook → upper left corner and lines of its box. Chapter 5 starts from the documents, so it has a row of its own.
STOPS: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "01_corpus_prep": ((172, 70), (mark("01 Corpus"), mark("extract, filter,"), mark("deduplicate"))),
    "02_normalize_and_segment": ((420, 70), (mark("02 Words"), mark("normalize,"), mark("segment"))),
    "03_tokenizers": ((668, 70), (mark("03 Tokenizers"), "BPE,", "Unigram")),
    "04_gpt2_by_hand": ((48, 208), (mark("04 By hand"), mark("GPT-2 and its"), mark("training loop"))),
    "04_gpt2_zero2_pretraining": ((272, 208), ("04 ZeRO-2", mark("GPT-2 under"), "DeepSpeed")),
    "05_gptsan_extra_stage": ((172, 332), ("05 GPTSAN", mark("extra stage"), mark("and spout"))),
    "06_prefix_tuning": ((496, 208), (mark("06 Prefixes"), mark("steer a frozen"), mark("model"))),
    "07_fastertransformer_conversion": ((702, 208), (mark("07 Serving"), "FasterTransformer,", "Triton")),
}
WIDTH, HEIGHT = 136, 66


def road(notebook: str | None = None) -> Drawing:
    """Draw the eight notebooks, what each hands to the next, and "you are here" at one of them.

    The arrows follow the inputs of the products in each chapter's products.py. Notebook 04_gpt2_by_hand hands on its
    model as code, and chapter 6 trains its base model as chapter 4 does.

    Args:
        notebook: file name of the notebook without its ending, such as "03_tokenizers"; None marks no place.

    Raises:
        UsageError: if the course has no such notebook.
    """
    if notebook is not None and notebook not in STOPS:
        raise UsageError(f"notebook {notebook!r} does not exist; allowed: {', '.join(STOPS)}")
    canvas = Canvas(860, 420)
    boxes = {
        name: canvas.box(
            *corner, WIDTH, HEIGHT, *map(tr, lines), color=ORANGE if name == notebook else PLAIN, bold=True
        )
        for name, (corner, lines) in STOPS.items()
    }
    if notebook is not None:
        here = boxes[notebook]
        canvas.text(here.x, here.y - 11, tr("▼ you are here"), SMALL, ORANGE.line, "start", bold=True)
    corpus, words, tokenizers, by_hand, zero2, gptsan, prefixes, serving = boxes.values()
    _hand_on(canvas, canvas.box(20, 82, 96, 42, tr("dumps,"), tr("web pages"), color=GREY, size=SMALL), corpus)
    _hand_on(canvas, corpus, words, tr("clean"), tr("documents"))
    _hand_on(canvas, words, tokenizers, tr("segmented"), tr("lines"))
    entry = by_hand.x + WIDTH - 16
    canvas.arrow(tokenizers.bottom, (tokenizers.bottom[0], 172), (entry, 172), (entry, by_hand.y))
    canvas.text(450, 160, tr("vocabulary, and the lines as token ids"), SMALL, MUTED)
    _hand_on(canvas, by_hand, zero2, tr("the same"), tr("model"))
    _hand_on(canvas, zero2, prefixes, tr("a base"), tr("model"))
    _hand_on(canvas, prefixes, serving, tr("prefix"), tr("files"))
    _hand_on(canvas, canvas.box(20, 344, 96, 42, tr("documents"), tr("of 01"), color=GREY, size=SMALL), gptsan)
    texts = canvas.box(420, 344, 212, 42, tr("texts in the style"), tr("of a class"), color=GREY, size=SMALL)
    _hand_on(canvas, gptsan, texts)
    answers = canvas.box(702, 344, WIDTH, 42, tr("answers over"), tr("HTTP and gRPC"), color=GREY, size=SMALL)
    canvas.arrow(serving.bottom, answers.top)
    titles = {name: tr(lines[0]) for name, (_, lines) in STOPS.items()}
    description = tr("The notebooks in order: {titles}.", titles=tr(", ").join(titles.values()))
    if notebook is not None:
        description += tr(" You are at {here}.", here=titles[notebook])
    return canvas.finish(tr("The road of the course"), description)


def _hand_on(canvas: Canvas, source: Box, target: Box, *labels: str) -> None:
    """Draw an arrow between two boxes in a row, with what is handed on as up to two labels above and below it."""
    canvas.arrow(source.right, target.left)
    middle = (source.right[0] + target.left[0]) / 2
    for label, shift in zip(labels, (-11, 11), strict=False):
        canvas.text(middle, source.right[1] + shift, label, SMALL, MUTED)

"""Drawings for chapter 4: a GPT-2 block, samples cut from the token stream, and a ZeRO-2 step."""

from collections.abc import Sequence

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks.drawing import (
    BLUE,
    GREEN,
    GREY,
    HUES,
    MUTED,
    ORANGE,
    PLAIN,
    PURPLE,
    SMALL,
    Box,
    Canvas,
    Color,
    Drawing,
)  # fmt: skip
from course_lib.pretrain.sampling import samples_in

# Width of the drawing of samples, its left margin, and the largest number of tokens that it has room for.
WIDTH, LEFT, MOST_TOKENS = 860, 110, 36


def gpt2_block(
    batch: int | str = "B", tokens: int | str = "T", hidden: int | str = "H", heads: int | str = "n"
) -> Drawing:
    """Draw one GPT-2 block: attention and MLP, each after a norm and with a residual connection, with all shapes.

    Give numbers instead of the symbols to see the shapes of a particular model. Sources: Radford et al. 2019, section
    2.3 (https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), and
    `GPT2Block` in https://github.com/huggingface/transformers, src/transformers/models/gpt2/modeling_gpt2.py.
    """
    size = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) else f"{hidden}/{heads}"
    states = f"[{batch}, {tokens}, {hidden}]"
    canvas = Canvas(860, 560)
    attention = (
        ("LayerNorm", states, GREY),
        (tr("Linear: queries, keys, values"), f"[{batch}, {tokens}, {_times(3, hidden)}]", ORANGE),
        (tr("split into heads"), f"3 × [{batch}, {heads}, {tokens}, {size}]", PLAIN),
        (tr("softmax(Q·Kᵀ / √d), masked"), f"[{batch}, {heads}, {tokens}, {tokens}]", BLUE),
        (tr("weights · V, join heads"), states, BLUE),
        (tr("Linear"), states, ORANGE),
    )
    mlp = (
        ("LayerNorm", states, GREY),
        (tr("Linear"), f"[{batch}, {tokens}, {_times(4, hidden)}]", ORANGE),
        ("GELU", f"[{batch}, {tokens}, {_times(4, hidden)}]", PLAIN),
        (tr("Linear"), states, ORANGE),
    )
    start = canvas.box(90, 48, 250, 40, tr("hidden states x"), states, color=GREEN)
    middle = _branch(canvas, start, attention, start.x - 34)
    start = canvas.box(500, 48, 250, 40, tr("x + attention"), states, color=GREEN)
    canvas.arrow(middle.right, (420, middle.right[1]), (420, start.left[1]), start.left)
    end = _branch(canvas, start, mlp, start.x + start.width + 34)
    canvas.text(end.x + end.width / 2, end.y + 58, tr("to the next block"), SMALL, MUTED)
    canvas.arrow(end.bottom, (end.bottom[0], end.y + 46))
    canvas.key(
        16,
        538,
        {
            tr("trained weights"): ORANGE,
            tr("norm (trained too)"): GREY,
            tr("no weights"): PLAIN,
            tr("mixes positions"): BLUE,
        },
    )
    symbols = tr("B sequences, T tokens, H hidden size, n heads, d = H/n")
    return canvas.finish(
        tr("A GPT-2 block and the shapes of its tensors"),
        tr(
            "Left, attention: norm, one linear layer for queries, keys and values, split into heads, masked "
            "softmax, weighted sum of the values, linear layer. Right, the MLP: norm, linear to 4 times the "
            "width, GELU, linear. The input of each part is added to its output. Shapes are {states} before and "
            "after; {symbols}.",
            states=states,
            symbols=symbols,
        ),
    )


def _times(factor: int, size: int | str) -> int | str:
    return factor * size if isinstance(size, int) else f"{factor}{size}"


def _branch(canvas: Canvas, start: Box, steps: Sequence[tuple[str, str, Color]], side: float) -> Box:
    """Draw the steps below `start`, and the residual connection at x = `side`. Return the box with the sum."""
    above = start
    for label, shape, color in steps:
        box = canvas.box(start.x, above.y + above.height + 20, start.width, 40, label, shape, color=color)
        canvas.arrow(above.bottom, box.top)
        above = box
    total = canvas.box(start.x + start.width / 2 - 20, above.y + above.height + 20, 40, 24, "+", color=GREEN, bold=True)
    canvas.arrow(above.bottom, total.top)
    left = side < start.x
    begin, end = (start.left, total.left) if left else (start.right, total.right)
    canvas.arrow(begin, (side, begin[1]), (side, end[1]), end, color=GREEN.line, thick=2)
    canvas.text(
        side + (8 if left else -8), end[1] + 14, tr("residual: added"), SMALL, GREEN.line, "start" if left else "end"
    )
    return total


def samples(lengths: Sequence[int], seq_length: int) -> Drawing:
    """Draw how documents become one stream of tokens, and how the stream is cut into samples.

    Sample i covers the tokens i·S to i·S + S of the stream. The last token of a sample is the first of the next one, so
    each token except the first is a target exactly once. The documents are drawn in stream order, which sampling.py
    shuffles; the samples are shuffled afterwards. Source: `sample_index` in sampling.py, as in megatron-core 0.9.

    Args:
        lengths: number of tokens in each document, including the end token.
        seq_length: S, the number of inputs in a sample.

    Raises:
        UsageError: if there are more tokens than the drawing has room for, or fewer than one sample needs.
    """
    total = sum(lengths)
    if not seq_length < total <= MOST_TOKENS or min(lengths) < 1:
        raise UsageError(f"lengths: {total} tokens are not allowed; allowed: {seq_length + 1} to {MOST_TOKENS}")
    count = samples_in(total, seq_length)
    cell = min(36.0, (WIDTH - LEFT - 20) / total)
    canvas = Canvas(WIDTH, 200 + 52 * count)
    owners = [document for document, length in enumerate(lengths) for _ in range(length)]
    starts = [sum(lengths[:document]) for document in range(len(lengths))]
    canvas.text(LEFT - 12, 58, tr("documents"), anchor="end")
    canvas.text(LEFT - 12, 112, tr("stream"), anchor="end")
    for document, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        color, x, width = HUES[document % len(HUES)], LEFT + start * cell, (length - 1) * cell
        if length > 1:
            name = tr("document {number}", number=document + 1) if width > 90 else f"{document + 1}"
            canvas.box(x, 44, width, 28, name, color=color, size=SMALL)
        canvas.box(x + width, 44, cell, 28, "E", color=color, size=SMALL, bold=True)
    for token, owner in enumerate(owners):
        canvas.box(LEFT + token * cell, 98, cell, 28, str(token), color=HUES[owner % len(HUES)], size=SMALL)
    for sample in range(count):
        first, y = sample * seq_length, 150 + 52 * sample
        canvas.text(LEFT - 12, y + 14, tr("sample {sample}", sample=sample), anchor="end")
        for token in range(first, first + seq_length + 1):
            shared = token % seq_length == 0 and 0 < token < count * seq_length
            color = HUES[owners[token] % len(HUES)]
            box = canvas.box(LEFT + token * cell, y, cell, 28, str(token), color=color, size=SMALL, bold=shared)
            if shared:
                canvas.line((box.x + 2, y + 31), (box.x + cell - 2, y + 31), color=ORANGE.line, thick=4)
        right = LEFT + (first + seq_length + 1) * cell + 12
        note = tr(
            "inputs {first}–{before_last}, targets {second}–{last}",
            first=first,
            before_last=first + seq_length - 1,
            second=first + 1,
            last=first + seq_length,
        )
        if right + 200 < WIDTH:
            canvas.text(right, y + 14, note, SMALL, MUTED, "start")
        else:
            canvas.text(LEFT + first * cell - 8, y + 14, note, SMALL, MUTED, "end")
    rest = total - count * seq_length - 1
    unused = tr("The last {number} tokens of the stream fill no sample.", number=rest) if rest else ""
    unused = tr("The last 1 token of the stream fills no sample.") if rest == 1 else unused
    shared_token = tr(
        "E: end token of a document. Underlined: shared by two samples, a target in one and an input in the next."
    )
    canvas.lines(16, canvas.height - 34, [shared_token, unused])
    return canvas.finish(
        tr(
            "{documents} documents, one stream, {count} samples of {seq_length} + 1 tokens",
            documents=len(lengths),
            count=count,
            seq_length=seq_length,
        ),
        tr(
            "The documents stand one after the other in a stream of {total} tokens. Sample i covers the tokens "
            "i·{seq_length} to i·{seq_length} + {seq_length}. Neighboring samples share one token. {unused} A "
            "sample may contain the end of one document and the beginning of the next.",
            total=total,
            seq_length=seq_length,
            unused=unused,
        ),
    )


def zero2_step() -> Drawing:
    """Draw one optimizer step of ZeRO stage 2 on two ranks: what each rank holds after each of its five phases.

    Sources: Rajbhandari et al. 2020, section 5 (https://arxiv.org/abs/1910.02054), and DeepSpeed's stage_1_and_2.py,
    which reduces each bucket of gradients while the backward pass still runs
    (https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py).
    """
    both, own = ((True, True), (True, True)), ((True, False), (False, True))
    # What a phase leaves on the ranks: its name, a detail, what is held, which shards each rank holds, and their color.
    phases = (
        (tr("1 forward"), tr("own micro-batch"), tr("all weights"), both, BLUE),
        (tr("2 backward"), tr("own micro-batch"), tr("own gradients"), both, ORANGE),
        (tr("3 reduce-scatter"), tr("mean over ranks"), tr("mean gradients"), own, ORANGE),
        (tr("4 AdamW step"), tr("each rank its shard"), tr("new weights"), own, GREEN),
        (tr("5 all-gather"), tr("of new shards"), tr("new weights"), both, GREEN),
    )
    canvas = Canvas(860, 330)
    left, step, width, rows = 70, 158, 138, (120, 190)
    for rank, y in enumerate(rows):
        canvas.text(16, y + 18, tr("rank {rank}", rank=rank), anchor="start")
    for number, (name, detail, label, held, color) in enumerate(phases):
        x, exchange = left + number * step, number in (2, 4)
        canvas.box(x, 48, width, 42, name, detail, color=PURPLE if exchange else GREY)
        for shards, y in zip(held, rows, strict=True):
            for shard, holds in enumerate(shards):
                text = tr("shard {shard}", shard=shard) if holds else ""
                shade = color if holds else PLAIN
                canvas.box(x + shard * width / 2, y, width / 2, 36, text, color=shade, dashed=not holds, size=SMALL)
        canvas.text(x + width / 2, rows[1] + 52, label, SMALL, MUTED)
        if number:
            for start in rows:
                for end in rows if exchange else (start,):
                    line = PURPLE.line if exchange else MUTED
                    canvas.arrow((x - step + width, start + 18), (x, end + 18), color=line)
    notes = (
        tr("Each rank holds all weights, but AdamW's moments and fp32 weights only for its own shard."),
        tr("DeepSpeed starts phase 3 for each bucket of gradients while phase 2 still runs."),
    )
    canvas.lines(16, 276, notes)
    canvas.key(16, 316, {tr("computation"): GREY, tr("exchange between the ranks"): PURPLE})
    return canvas.finish(
        tr("One ZeRO-2 step on two ranks"),
        tr(
            "Each rank runs forward and backward on its own micro-batch with all weights. The reduce-scatter leaves "
            "each rank with the mean gradients of one shard, half of the parameters. Each rank updates its shard "
            "with AdamW, whose state it holds for that shard only. The all-gather gives every rank all updated "
            "weights."
        ),
    )

"""Drawing for chapter 5: GPTSAN with an extra stage and the spout, and which parts are frozen or trained."""

from course_lib.language.words import tr
from course_lib.notebooks.drawing import FROZEN, MUTED, PLAIN, SMALL, TRAINED, Box, Canvas, Color, Drawing


def extra_stage(switch_layers: int, extra_layers: int, experts: int) -> Drawing:
    """Draw the model during the training of an extra stage: left the whole model, right one layer of each kind.

    Frozen is what `extra_stage.py` lists in ignore-params.json: all parameters of the base model except the spout. In
    both kinds of layers, the norm is applied to the output of a part before it is added to the input. Sources:
    model.py, attention.py and experts.py, which follow https://github.com/tanreinama/GPTSAN; switch routing: Fedus,
    Zoph and Shazeer 2022 (https://arxiv.org/abs/2101.03961).

    Args:
        switch_layers: number of switch layers in the base model.
        extra_layers: number of extra layers on top.
        experts: number of experts in a switch layer.
    """
    canvas = Canvas(860, 590)
    extras = tr("1 extra layer") if extra_layers == 1 else tr("{number} extra layers", number=extra_layers)
    x, width = 30, 200
    stack = (
        (tr("embedding + position"), tr("of each token"), FROZEN, 50),
        (tr("{number} switch layers", number=switch_layers), tr("of the base model"), FROZEN, 150),
        (tr("+ extra positions"), "", TRAINED, 34),
        (extras, tr("new"), TRAINED, 80),
        (tr("linear, swish"), "", FROZEN, 34),
        (tr("head + bias"), tr("tied to the embedding"), FROZEN, 44),
    )
    boxes: list[Box] = []
    y = 48.0
    for label, detail, color, height in stack:
        boxes.append(canvas.box(x, y, width, height, label, *filter(None, [detail]), color=color))
        if len(boxes) > 1:
            canvas.arrow(boxes[-2].bottom, boxes[-1].top)
        y += height + 20
    switch, extra = boxes[1], boxes[3]
    spout = canvas.box(290, 48, 130, 50, tr("spout vector"), tr("class of the text"), color=PLAIN)
    network = canvas.box(290, 118, 130, 50, tr("spout network"), tr("8 × linear, tanh"), color=TRAINED)
    slots = canvas.box(290, 188, 130, 67, tr("linear"), tr("1 key and 1 value"), tr("for each layer"), color=TRAINED)
    canvas.arrow(spout.bottom, network.top)
    canvas.arrow(network.bottom, slots.top)
    canvas.arrow(slots.left, (switch.x + width, slots.left[1]), color=TRAINED.line, thick=2)
    canvas.arrow(slots.bottom, (slots.bottom[0], extra.left[1]), extra.right, color=TRAINED.line, thick=2)
    _switch_layer(canvas, 456, 36, experts)
    _extra_layer(canvas, 456, 378)
    canvas.key(16, 572, {tr("frozen"): FROZEN, tr("trained"): TRAINED, tr("no weights"): PLAIN})
    return canvas.finish(
        tr("GPTSAN with an extra stage and the spout"),
        tr(
            "Tokens pass the embedding, {switch_layers} switch layers, the extra positions, {extras}, a linear "
            "layer and the head. The spout network turns a vector into one key and one value for each layer. "
            "Trained are the extra positions, the extra layers and the spout network; the rest is frozen. A "
            "switch layer has attention and a router that sends each token to one of {experts} experts; a soft "
            "bypass, tanh(x·W), is added for every token. An extra layer has attention and one MLP. A norm "
            "follows each part, before the sum.",
            switch_layers=switch_layers,
            extras=extras,
            experts=experts,
        ),
    )


def _part(canvas: Canvas, x: float, y: float, label: str, detail: str, color: Color) -> Box:
    """Draw the residual step x + norm(part(x)) as a row centered at height `y`, and return the box of its sum."""
    part = canvas.box(x + 46, y - 21, 158, 42, label, detail, color=color)
    norm = canvas.box(x + 226, y - 15, 52, 30, tr("norm"), color=color, size=SMALL)
    total = canvas.box(x + 306, y - 13, 28, 26, "+", bold=True)
    canvas.arrow((x + 22, y), part.left)
    canvas.arrow(part.right, norm.left)
    canvas.arrow(norm.right, total.left)
    canvas.arrow((x + 22, y), (x + 22, y + 32), (total.bottom[0], y + 32), total.bottom)
    return total


def _next_row(canvas: Canvas, x: float, total: Box, y: float) -> None:
    """Draw the line from a sum at the end of a row to the beginning of the next row, whose middle is `y`."""
    between = total.left[1] + 46
    end = x + 356
    canvas.line(total.right, (end, total.right[1]), (end, between), (x + 22, between), (x + 22, y))


def _switch_layer(canvas: Canvas, x: float, y: float, experts: int) -> None:
    canvas.frame(x, y, 388, 334, tr("a switch layer"), FROZEN)
    total = _part(canvas, x, y + 50, tr("attention"), tr("spout slot + tokens"), FROZEN)
    top, low, end = y + 152, y + 218, y + 300
    _next_row(canvas, x, total, end)
    router = canvas.box(x + 46, top - 21, 74, 42, tr("router"), color=FROZEN)
    expert = canvas.box(
        x + 140, top - 21, 128, 42, tr("1 of {experts} experts", experts=experts), tr("× its probability"), color=FROZEN
    )
    bypass = canvas.box(x + 46, low - 21, 222, 42, tr("soft bypass"), tr("tanh(x·W), for every token"), color=FROZEN)
    middle = (top + low) / 2
    both = canvas.box(x + 284, middle - 13, 28, 26, "+", bold=True)
    norm = canvas.box(x + 326, middle - 15, 52, 30, tr("norm"), color=FROZEN, size=SMALL)
    total = canvas.box(x + 338, end - 13, 28, 26, "+", bold=True)
    canvas.arrow((x + 22, top), router.left)
    canvas.arrow(router.right, expert.left)
    canvas.arrow((x + 22, low), bypass.left)
    canvas.arrow(expert.right, (both.top[0], top), both.top)
    canvas.arrow(bypass.right, (both.bottom[0], low), both.bottom)
    canvas.arrow(both.right, norm.left)
    canvas.arrow(norm.bottom, total.top)
    canvas.arrow((x + 22, end), total.left)
    canvas.text(x + 200, end - 12, tr("x is added"), SMALL, MUTED)


def _extra_layer(canvas: Canvas, x: float, y: float) -> None:
    canvas.frame(x, y, 388, 178, tr("an extra layer"), TRAINED)
    total = _part(canvas, x, y + 46, tr("attention"), tr("spout slot + tokens"), TRAINED)
    _next_row(canvas, x, total, y + 132)
    _part(canvas, x, y + 132, "MLP", tr("swish, with biases"), TRAINED)

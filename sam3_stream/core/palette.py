"""One colour an object, wherever it is shown."""

# Twelve colours that people tell apart (after Sasha Trubetskoy, https://sashamaps.net/docs/resources/20-colors/), each
# with the letters that can be read on it; supervision's own palette has three reds in a row.
LETTERS_BY_COLOR = {
    "#e6194b": "#ffffff",
    "#3cb44b": "#ffffff",
    "#4363d8": "#ffffff",
    "#f58231": "#000000",
    "#911eb4": "#ffffff",
    "#42d4f4": "#000000",
    "#f032e6": "#ffffff",
    "#bfef45": "#000000",
    "#469990": "#ffffff",
    "#ffe119": "#000000",
    "#9a6324": "#ffffff",
    "#000075": "#ffffff",
}
_COLORS = tuple(LETTERS_BY_COLOR)


def color_of(object_id: int) -> str:
    """The object's colour, as ``#rrggbb``."""
    return _COLORS[object_id % len(_COLORS)]

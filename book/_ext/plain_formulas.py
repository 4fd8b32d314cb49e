r"""Short formulas in letters, for places where nothing is typeset: ``β log (π/πref)`` for ``\beta \log(\pi/\piref)``."""

import re
from collections.abc import Iterator

LOWER = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
UPPER = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
WORDS = "log ln exp min max arg sin cos det sup inf lim mod bmod arcsin cosh sinh tanh argmax argmin"
NOTHING = "! left right big Big bigl bigr Bigl Bigr bigg Bigg biggl biggr displaystyle limits nolimits"
OTHERS = r"""varepsilon ε  varphi φ  ell ℓ  nabla ∇  partial ∂  infty ∞  sum Σ  prod Π  int ∫  le ≤  leq ≤  ge ≥  geq ≥  ne ≠  neq ≠  approx ≈
propto ∝  equiv ≡  ll ≪  gg ≫  cup ∪  cap ∩  forall ∀  exists ∃  setminus ∖  subseteq ⊆  mapsto ↦  top T  prime ′  cdot ·  times ×  pm ±
circ ∘  odot ⊙  vert |  lvert |  rvert |  | ‖  Vert ‖  parallel ‖  perp ⊥  dagger †  dots …  ldots …  cdots …  star *  ast *  lfloor ⌊
rfloor ⌋  lceil ⌈  rceil ⌉  langle ⟨  rangle ⟩  E E  KL KL  Pr Pr  piref πref  piold πold  { {  } }  % %  & &  # #  _ _"""
APART = "sim ~  in ∈  notin ∉  succ ≻  prec ≺  to →  rightarrow →  leftarrow ←  gets ←  Rightarrow ⇒  iff ⇔  mid |"
SIGNS = {
    **dict(zip(LOWER.split(), "αβγδεζηθικλμνξπρστφχψω", strict=True)),
    **dict(zip(UPPER.split(), "ΓΔΘΛΞΠΣΦΨΩ", strict=True)),
    **dict(pair.split(" ") for pair in re.split(r"  |\n", OTHERS)),
    **{name: f" {sign} " for name, sign in (pair.split(" ") for pair in APART.split("  "))},
    **{name: f" {name} " for name in WORDS.split()},
    **dict.fromkeys([",", ";", ":", " ", "quad", "qquad"], " "),
    **dict.fromkeys(NOTHING.split(), ""),
}
DRESS = ("mathrm", "mathsf", "mathbf", "mathbb", "mathcal", "mathit", "texttt", "text", "textit", "operatorname", "bm", "boldsymbol")  # fmt: skip
OVER = {"hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0304", "tilde": "\u0303", "widetilde": "\u0303", "vec": "\u20d7"}  # fmt: skip
BELOW = dict(zip("0123456789+−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
ABOVE = dict(
    zip("0123456789+−=()abcdefghijklmnoprstuvwxyzTβ", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀᵝ", strict=True)
)
TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\s+|.")


def letters(latex: str) -> str | None:
    """A formula as a line of letters; None if it takes more than one line, or a sign that is not known here."""
    try:
        text = _line(iter(TOKEN.findall(latex.strip().strip("$").replace("~", " "))))
    except (KeyError, StopIteration):
        return None
    return re.sub(r"\s*([,;)\]}])", r"\1", re.sub(r"([(\[])\s+", r"\1", " ".join(text.replace("'", "′").split())))


def _line(tokens: Iterator[str], end: str = "") -> str:
    """All signs up to ``end``."""
    made = ""
    for token in tokens:
        if token == end:
            return made
        if token in ("_", "^"):
            made = made.rstrip() + _raised(_next(tokens), BELOW if token == "_" else ABOVE, token)
        elif token == "{":
            made += _line(tokens, "}")
        elif token.startswith("\\"):
            made += _command(token[1:].rstrip("*"), tokens)
        else:
            made += "−" if token == "-" else token
    if end:
        raise KeyError(end)
    return made


def _next(tokens: Iterator[str]) -> str:
    """What a command takes: a group in braces, or one sign."""
    token = next(tokens)
    while not token.strip():
        token = next(tokens)
    if token == "{":
        return _line(tokens, "}")
    return _command(token[1:], tokens) if token.startswith("\\") else token


def _command(name: str, tokens: Iterator[str]) -> str:
    if name in DRESS:
        return _next(tokens)
    if name in OVER:
        inner = _next(tokens)
        return inner[:1] + OVER[name] + inner[1:]
    if name in ("frac", "tfrac", "dfrac"):
        return f"{_whole(_next(tokens))}/{_whole(_next(tokens))}"
    if name in ("binom", "tbinom"):
        return f"C({_next(tokens)}, {_next(tokens)})"
    if name == "sqrt":
        return f"√{_whole(_next(tokens))}"
    return SIGNS[name]


def _whole(part: str) -> str:
    return part.strip() if re.fullmatch(r"\s*(?:\w+|\d*\.\d+)\s*", part) else f"({part.strip()})"


def _raised(part: str, table: dict[str, str], sign: str) -> str:
    """Small letters where there are some for all of it."""
    bare = part.replace(" ", "")
    if all(letter in table for letter in bare):
        return "".join(table[letter] for letter in bare)
    if bare in ("*", "′"):
        return bare
    if sign == "_":
        return part.strip() if bare.isalnum() else f"_({part.strip()}) "
    return f"^{bare if len(bare) == 1 else f'({part.strip()})'}"

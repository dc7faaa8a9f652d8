"""The header's declarations, parsed by pycparser, joined with their comments into the description of the ABI."""

from __future__ import annotations

import re
from typing import Any

from pycparser import c_ast, c_parser

from . import arguments
from .constants import read_constants
from .dialect import lint
from .doctags import MANDATORY, Doc, parse_doc
from .errordef import match_header, read_errors
from .layout import size_align
from .model import Abi, Callback, Constant, Field, Function, Kind, Section, Struct, Type
from .report import Problem, Refused, refuse
from .scanner import Source, scan, squeeze

_PRELUDE = " ".join(
    f"typedef {c} {name};"
    for name, c in {
        "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
        "int32_t": "int", "uint32_t": "unsigned", "int64_t": "long", "uint64_t": "unsigned long",
    }.items()
)  # fmt: skip
_TYPES = "<stdint.h>"
_SECTION = re.compile(r"-{20,}\s*\n[ *]*\d+\. ([^\n]+)\n?(.*)", re.DOTALL)


def read_abi(header_path: str, header: str, errors_path: str, errors: str) -> Abi:
    """The description of the ABI. Raises Refused with every problem found."""
    source = scan(header_path, header)
    problems = lint(source)
    if problems:
        raise Refused(problems)
    reader = _Reader(source)
    abi = reader.read()
    abi.errors = read_errors(errors_path, errors, reader.problems)
    match_header(header_path, abi.errors, abi.constants, reader.define_lines, reader.problems)
    if reader.problems:
        raise Refused(reader.problems)
    return abi


def _parse(code: str, path: str) -> c_ast.FileAST:
    return c_parser.CParser().parse(f'#line 1 "{_TYPES}"\n{_PRELUDE}\n#line 1 "{path}"\n{code}\n', path)


def _first_bad_line(code: str) -> int:
    """The line of the first declaration that the parser refuses: not all of its errors tell one."""
    start = depth = 0
    for at, char in enumerate(code):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            try:
                _parse(code[: at + 1], "")
            except c_parser.ParseError:
                break
            start = at + 1
    return code.count("\n", 0, len(code) - len(code[start:].lstrip())) + 1


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.define_lines = {d.rest.partition(" ")[0]: d.line for d in source.directives if d.word == "define"}
        self.api_lines = [n for n, line in enumerate(source.code, 1) if re.match(r"HWS_API\b", line)]
        self.abi = Abi("", 0)
        self.world = arguments.World({}, set(), [])

    def complain(self, line: int, reason: str) -> None:
        self.problems.append(Problem(self.source.path, line, reason))

    def read(self) -> Abi:
        constants, groups = read_constants(self.source, self.problems)
        values = {c.name: c.value for c in constants}
        self.abi.constants, self.abi.groups = constants, groups
        self.abi.kinds = _kinds(constants)
        self.world.kinds = [k.name for k in self.abi.kinds]
        try:
            self.abi.version = ".".join(str(values[f"HWS_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
            self.abi.abi_version = values["HWS_ABI_VERSION"]
        except KeyError as missing:
            self.complain(1, f"{missing.args[0]} is not defined")
        self.sections()
        nodes = [n for n in self.syntax_tree().ext if str(n.coord.file) == self.source.path]
        # Types first: a function may take a structure that is only named above it.
        for node in sorted(nodes, key=_is_function):
            self.declaration(node)
        return self.abi

    def sections(self) -> None:
        self.section_lines: list[tuple[int, str]] = []
        for c in self.source.comments:
            m = _SECTION.search(c.text)
            if m and not c.doc:
                title = m.group(1).strip()
                self.section_lines.append((c.line, title))
                paragraphs = [squeeze(p) for p in re.split(r"\n[ \t]*\*?[ \t]*\n", m.group(2))]
                self.abi.sections.append(Section(title, "\n\n".join(p for p in paragraphs if p)))

    def section_of(self, line: int) -> str:
        before = [title for start, title in self.section_lines if start < line]
        return before[-1] if before else ""

    def syntax_tree(self) -> c_ast.FileAST:
        code = "\n".join(re.sub(r"\bHWS_API\b", "       ", line) for line in self.source.code)
        try:
            return _parse(code, self.source.path)
        except c_parser.ParseError as error:
            raise refuse(self.source.path, _first_bad_line(code), f"not C: {str(error).rpartition(': ')[2]}") from None

    def doc(self, line: int, what: str, needed: bool) -> Doc:
        comment = self.source.doc_before(line)
        if comment is None:
            if needed:
                self.complain(line, f"{what} has no doc comment directly above it")
            return Doc(line)
        doc, problems = parse_doc(self.source.path, comment)
        self.problems += problems
        return doc

    def declaration(self, node: Any) -> None:
        line = node.coord.line
        if isinstance(node, c_ast.Typedef):
            self.typedef(node)
        elif _is_function(node):
            self.function(node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct) and node.name is None:
            self.struct(node.type.name, node.type)
        else:
            self.complain(line, "only constants, typedefs, structs and functions are declared here")

    def typedef(self, node: c_ast.Typedef) -> None:
        inner = node.type
        line = node.coord.line
        if isinstance(inner, c_ast.PtrDecl) and isinstance(inner.type, c_ast.FuncDecl):
            self.callback(node.name, inner.type, line)
        elif isinstance(inner, c_ast.TypeDecl) and isinstance(inner.type, c_ast.Struct):
            if inner.type.name != node.name:
                self.complain(
                    line, f"struct {inner.type.name or '(no name)'} and its typedef {node.name}: one name for both"
                )
            elif inner.type.decls is not None:
                self.struct(node.name, inner.type)
        elif node.name != "hws_id":
            self.complain(line, f"typedef {node.name}: only structs, callbacks and hws_id")

    def type_of(self, node: Any, line: int) -> Type | None:
        """A scalar, struct or callback behind any number of pointers."""
        text, pointers = "", 0
        while isinstance(node, c_ast.PtrDecl):
            text = "*" + (" const " if "const" in node.quals else "") + text
            pointers += 1
            node = node.type
        if isinstance(node, c_ast.FuncDecl):
            self.complain(line, "a function pointer needs a typedef of its own")
            return None
        if not isinstance(node, c_ast.TypeDecl) or not isinstance(node.type, c_ast.IdentifierType):
            self.complain(line, "a type is named by one word: a fixed-width type, hws_id, or a typedef of this header")
            return None
        const = "const" in node.quals
        base = " ".join(node.type.names)
        c = f"{'const ' if const else ''}{base}{' ' if pointers else ''}{text}".strip()
        return Type(re.sub(r" +", " ", c), base, const, pointers)

    def struct(self, name: str, node: c_ast.Struct) -> None:
        line = node.coord.line
        if not name.startswith("hws_"):
            self.complain(line, f"{name}: names of types start with hws_")
        if node.decls is None:
            return
        doc = self.doc(self.struct_line(line), name, False)
        struct = Struct(name, 0, 1, False, doc.text, [])
        for decl in node.decls:
            self.field(struct, decl)
        if struct.size % struct.align:
            self.complain(
                line, f"{name}: {struct.align - struct.size % struct.align} bytes of padding at its end: name them"
            )
        struct.sized = bool(struct.fields) and struct.fields[0].name == "struct_size"
        if name.endswith("_opts") and not struct.sized:
            self.complain(line, f"{name}: an option structure starts with uint32_t struct_size")
        if struct.sized and struct.fields[0].type.c != "uint32_t":
            self.complain(line, f"{name}: struct_size is a uint32_t")
        self.world.structs[name] = struct
        self.abi.structs.append(struct)

    def struct_line(self, line: int) -> int:
        """The line on which the declaration that holds this line starts."""
        while line > 1 and not re.match(r"(typedef )?struct\b", self.source.code[line - 1]):
            line -= 1
        return line

    def field(self, struct: Struct, decl: c_ast.Decl) -> None:
        line = decl.coord.line
        if decl.bitsize is not None:
            self.complain(line, f"{struct.name}.{decl.name}: no bit-fields")
            return
        inner, array = decl.type, None
        if isinstance(inner, c_ast.ArrayDecl):
            if not isinstance(inner.dim, c_ast.Constant):
                self.complain(line, f"{struct.name}.{decl.name}: the length of an array is a plain number")
                return
            array, inner = int(inner.dim.value, 0), inner.type
        kind = self.type_of(inner, line)
        if kind is None:
            return
        known = size_align(kind, self.world.structs, self.world.callbacks)
        if known is None:
            self.complain(line, f"{struct.name}.{decl.name}: `{kind.c}` is not a type of the ABI")
            return
        size, align = known
        if struct.size % align:
            self.complain(
                line, f"{struct.name}: padding before {decl.name}: order the fields so that there is none, or name it"
            )
            struct.size += align - struct.size % align
        doc = self.source.trailing(line)
        nullable = kind.pointers > 0 and re.search(r"\bnullable\b|\bor null\b|\bnull:", doc) is not None
        total = size * (1 if array is None else array)
        struct.fields.append(Field(decl.name, kind, array, struct.size, total, nullable, doc))
        struct.size += total
        struct.align = max(struct.align, align)

    def parameters(self, node: c_ast.FuncDecl, doc: Doc, line: int, what: str, kinds: bool) -> list[Any] | None:
        names: list[str] = []
        types: list[Type] = []
        for p in node.args.params if node.args else []:
            if isinstance(p, c_ast.Typename) and p.name is None and _is_void(p.type):
                continue
            kind = self.type_of(p.type, p.coord.line if p.coord else line)
            if kind is None or p.name is None:
                self.complain(line, f"{what}: an argument without a name or a proper type")
                return None
            if kind.pointers == 0 and kind.base in self.world.structs:
                self.complain(line, f"{what}: {p.name} is a structure by value")
                return None
            names.append(p.name)
            types.append(kind)
        args, reasons = arguments.describe(names, types, doc.params, self.world)
        for reason in reasons:
            if kinds:
                self.complain(line, f"{what}: {reason}")
        return args

    def callback(self, name: str, node: c_ast.FuncDecl, line: int) -> None:
        doc = self.doc(line, name, True)
        returns = self.type_of(node.type, line)
        args = self.parameters(node, doc, line, name, False)
        if returns is None or args is None:
            return
        if returns.base in self.world.structs and returns.pointers == 0:
            self.complain(line, f"{name} returns a structure")
        self.world.callbacks.add(name)
        self.abi.callbacks.append(Callback(name, returns, args, doc.text))

    def function(self, node: c_ast.Decl) -> None:
        name, line = node.name, node.coord.line
        start = max((n for n in self.api_lines if n <= line), default=0)
        if start == 0 or any(";" in text for text in self.source.code[start - 1 : line - 1]):
            self.complain(line, f"{name}: a function is declared with HWS_API at the start of its line")
            start = line
        if not re.fullmatch(r"hws_[a-z0-9]+(_[a-z0-9]+)*", name):
            self.complain(line, f"{name}: names of functions are hws_words_like_this")
        doc = self.doc(start, name, True)
        returns = self.type_of(node.type.type, line)
        args = self.parameters(node.type, doc, line, name, True)
        if returns is None or args is None:
            return
        self.check_tags(doc, name, returns)
        tags = {key: doc.tags.get(key, "") for key in ("return", *MANDATORY, "ucx")}
        said = f"{tags['return']} {' '.join(a.doc for a in args)}"
        posts = bool(args) and args[-1].name == "op" and args[-1].role == "out"
        self.abi.functions.append(
            Function(
                name=name,
                section=self.section_of(line),
                returns=returns,
                result=_result(returns),
                args=args,
                positive=posts or "HWS_DONE" in tags["return"] or not tags["return"].startswith("0"),
                posts=posts,
                brief=doc.brief,
                doc=doc.text,
                return_doc=tags["return"],
                codes=sorted({c for c in re.findall(r"\bHWS_E_[A-Z_]+", said)}),
                thread=tags["thread"],
                blocks=tags["blocks"],
                blocking=tags["blocks"] != "no",
                owns=tags["owns"],
                since=tags["since"],
                ucx=re.findall(r"\buc[pst]_\w+", tags["ucx"]),
            )
        )

    def check_tags(self, doc: Doc, name: str, returns: Type) -> None:
        for tag in MANDATORY + (() if returns.c == "void" else ("return",)):
            if tag not in doc.tags:
                self.complain(doc.line, f"{name}: no @{tag}")
        if not doc.brief:
            self.complain(doc.line, f"{name}: its comment does not say what it does")
        if doc.tags.get("thread", "any") not in ("any", "outside"):
            self.complain(doc.line, f"{name}: @thread is any or outside")
        if not re.fullmatch(r"\d+\.\d+", doc.tags.get("since", "0.1")):
            self.complain(doc.line, f"{name}: @since is a version such as 0.1")
        if (returns.pointers and returns.c != "const char *") or returns.base in self.world.structs:
            self.complain(doc.line, f"{name} returns `{returns.c}`: a number, or a constant text")


def _is_function(node: Any) -> bool:
    return isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl)


def _is_void(node: Any) -> bool:
    return (
        isinstance(node, c_ast.TypeDecl) and isinstance(node.type, c_ast.IdentifierType) and node.type.names == ["void"]
    )


def _kinds(constants: list[Constant]) -> list[Kind]:
    return [
        Kind(c.name.removeprefix("HWS_KIND_").lower(), c.value) for c in constants if c.name.startswith("HWS_KIND_")
    ]


def _result(returns: Type) -> str:
    if returns.c == "void":
        return "none"
    if returns.pointers:
        return "text"
    return "status" if returns.c == "int32_t" else "value"

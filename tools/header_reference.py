"""The reference page of a header of `rabbet/`, out of its own comments."""

import re
from collections.abc import Iterator
from pathlib import Path


def prose(comment: str) -> str:
    """The text of a C comment, its lines joined; lists stay lists."""
    text = re.sub(r"^/\*|\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line) for line in text.splitlines()]
    paragraphs = re.sub(r"\n(?! *\n| *\d\. | *\")", " ", "\n".join(lines))
    return re.sub(r" {2,}", " ", paragraphs).strip()


def tokens(text: str) -> Iterator[str]:
    """Comments, directives and declarations that follow each other in C text."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
        elif text[at] == "#":
            end = re.compile(r"(?<!\\)\n|\Z").search(text, at).start()  # type: ignore[union-attr]
        else:
            end = end_of_declaration(text, at)
        trailing = re.compile(r"[ \t]*/\*.*?\*/(?=[ \t]*\n)", re.S).match(text, end)
        if trailing and text[at : at + 2] != "/*":
            end = trailing.end()
        yield text[at:end]
        at = end


def end_of_declaration(text: str, at: int) -> int:
    """Where the declaration at `at` ends: behind the first semicolon outside of braces and comments."""
    depth = 0
    for match in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(text, at):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if match[0] == ";" and not depth:
            return match.end()
    return len(text)


def name_of(declaration: str) -> str:
    """What a declaration declares: a struct, a function, or the first constant of an enum."""
    plain = re.sub(r"/\*.*?\*/", "", declaration, flags=re.S)
    for pattern in (
        r"^#define (\w+)",
        r"struct (\w+) \{",
        r"\(\*(\w+)\)",
        r"enum \{\s*(\w+)",
        r"(\w+);",
    ):
        found = re.search(pattern, plain)
        if found:
            return found[1]
    return ""


def entry(declaration: str, comment: str) -> list[str]:
    """A heading, the text of the comment, and the declaration."""
    lines = [f"### {name_of(declaration)}", ""]
    if comment:
        lines += [prose(comment), ""]
    return [*lines, "```c", declaration, "```", ""]


def host_functions(body: str) -> list[str]:
    """The functions of the host table, one entry each."""
    lines, comment = [], ""
    for token in tokens(body):
        if token.startswith("/*"):
            comment = token
            continue
        lines += entry(re.sub(r"\n {2}", "\n", token), comment)
        comment = ""
    return lines


def header_page(header: Path) -> str:
    """Markdown: each section of the header with its structs, constants and functions."""
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", header.read_text(), flags=re.S)
    text = text[: text.rindex("#endif")]
    first = text.index("/*")
    lines = [f"# rabbet/{header.name}", "", prose(text[first : text.index("*/") + 2]), ""]
    comment = ""
    guard = re.search(r"^#define RABBET_\w+_H$", text, re.M)
    for token in tokens(text[guard.end() if guard else 0 :]):
        section = re.match(r"/\* ---- (.*?)\s*\*/", token, re.S)
        if section:
            lines += [f"## {section[1][0].upper()}{section[1][1:]}", ""]
            comment = ""
        elif token.startswith("/*"):
            comment = token
        elif token.startswith("struct RbHost"):
            lines += ["Functions of `RbHost`, which `init` is given.", ""]
            lines += host_functions(token[token.index("{") + 1 : token.rindex("}")])
        elif not re.match(r"#(if|else|endif|error|ifndef|include)|extern|\}", token):
            lines += entry(token, comment)
            comment = ""
    return "\n".join(lines)

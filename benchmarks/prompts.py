"""Prompts that the engine's benchmark writes on: texts that repeat what they were given, and texts that do not."""

from __future__ import annotations

_FUNCTION = """def load_settings(path, defaults=None, strict=False):
    settings = dict(defaults or {})
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            key, separator, value = line.partition("=")
            if not separator:
                if strict:
                    raise ValueError(f"{path}:{number}: expected key=value, got {line!r}")
                continue
            settings[key.strip()] = value.strip()
    return settings
"""

_PASSAGE = (
    "The harbour authority published its yearly report on Monday. According to the report, 4,212 ships called at the "
    "port last year, eight percent more than the year before. The director, Maria Lindqvist, said that the new "
    "northern quay had shortened the average waiting time from nineteen hours to seven. Fishermen, however, "
    "complained that the dredging had driven the herring out of the inner bay. The report recommends a study of the "
    "herring stock before the southern quay is extended, and sets aside two million crowns for it."
)

# the answer copies most of what the question holds
REPEATING = {
    "edit a function": "Rename the parameter `path` to `file_path` in this function and return the whole function:\n\n"
    f"```python\n{_FUNCTION}```",
    "add a docstring": "Repeat the following function with a docstring added, and change nothing else:\n\n"
    f"```python\n{_FUNCTION}```",
    "summarise with quotations": "Summarise this text, quoting the important sentences word for word:\n\n" + _PASSAGE,
}

# the answer has little to copy
CREATIVE = {
    "story": "Write a short story about a lighthouse keeper who finds a map.",
    "advice": "How should I prepare for my first winter hike in the mountains?",
    "explanation": "Explain to a child why the sky is blue and sunsets are red.",
}

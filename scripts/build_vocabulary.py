"""Build `sam3_stream/models/lite/vocabulary.json`: which words name which ImageNet classes.

Inputs are data only:

    apt-get download wordnet-base && dpkg-deb -x wordnet-base_*.deb wordnet       # WordNet 3.0
    pip download --no-deps timm && unzip timm-*.whl 'timm/data/_info/imagenet_synsets.txt'
    scripts/build_vocabulary.py wordnet/usr/share/wordnet timm/data/_info/imagenet_synsets.txt

A class's number is its line in the synsets file; its WordNet id is "n" and the synset's offset in `data.noun`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[1] / "sam3_stream" / "models" / "lite" / "vocabulary.json"
MOST_CLASSES = 400  # "animal" is the widest word that still says what to look for; "object" is not
PERSON = "00007846"  # the 1000 classes know three kinds of people: no ground to take "person" for an answer
NOTICE = (
    "Words and their relations from WordNet 3.0, Copyright 2006 by Princeton University. All rights reserved. "
    'THIS SOFTWARE AND DATABASE IS PROVIDED "AS IS" AND PRINCETON UNIVERSITY MAKES NO REPRESENTATIONS OR WARRANTIES, '
    "EXPRESS OR IMPLIED. BY WAY OF EXAMPLE, BUT NOT LIMITATION, PRINCETON UNIVERSITY MAKES NO REPRESENTATIONS OR "
    "WARRANTIES OF MERCHANT-ABILITY OR FITNESS FOR ANY PARTICULAR PURPOSE OR THAT THE USE OF THE LICENSED SOFTWARE, "
    "DATABASE OR DOCUMENTATION WILL NOT INFRINGE ANY THIRD PARTY PATENTS, COPYRIGHTS, TRADEMARKS OR OTHER RIGHTS. "
    "Permission to use, copy, modify and distribute this software and database and its documentation for any purpose "
    "and without fee or royalty is hereby granted, provided that you agree to comply with the following copyright "
    "notice and statements, including the disclaimer, and that the same appear on ALL copies of the software, database "
    "and documentation, including modifications that you make for internal use or for distribution. The name of "
    "Princeton University or Princeton may not be used in advertising or publicity pertaining to distribution of the "
    "software and/or database. Title to copyright in this software, database and any associated documentation shall at "
    "all times remain with Princeton University and LICENSEE agrees to preserve same."
)


def read_synsets(data_noun: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The words of every noun synset and its hypernyms, by offset. Format: the manual page wndb(5WN)."""
    words: dict[str, list[str]] = {}
    hypernyms: dict[str, list[str]] = {}
    for line in data_noun.read_text(encoding="ascii").splitlines():
        if line.startswith(" "):
            continue  # the licence at the top
        fields = line.split()
        word_count = int(fields[3], 16)
        words[fields[0]] = [fields[4 + 2 * n].replace("_", " ").lower() for n in range(word_count)]
        pointers = fields[5 + 2 * word_count :]
        hypernyms[fields[0]] = [
            offset for kind, offset in zip(pointers[::4], pointers[1::4], strict=False) if kind in ("@", "@i")
        ]
    return words, hypernyms


def read_senses(index_noun: Path) -> dict[str, list[str]]:
    """The synsets of every word, the most frequent meaning first."""
    senses = {}
    for line in index_noun.read_text(encoding="ascii").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            senses[fields[0].replace("_", " ")] = fields[-int(fields[2]) :]
    return senses


def classes_by_synset(class_offsets: list[str], hypernyms: dict[str, list[str]]) -> dict[str, set[int]]:
    """Which classes every synset covers, directly or through its hyponyms."""
    covered: dict[str, set[int]] = defaultdict(set)
    for number, offset in enumerate(class_offsets):
        pending = [offset]
        while pending:
            synset = pending.pop()
            covered[synset].add(number)
            pending += hypernyms[synset]
    return covered


def is_person(offset: str, hypernyms: dict[str, list[str]]) -> bool:
    return offset == PERSON or any(is_person(parent, hypernyms) for parent in hypernyms[offset])


def build(wordnet: Path, synsets: Path) -> dict[str, list[int]]:
    """The classes that every word names: those called so themselves, and those of the word's most frequent meaning."""
    words, hypernyms = read_synsets(wordnet / "data.noun")
    senses = read_senses(wordnet / "index.noun")
    class_offsets = [line.strip().removeprefix("n") for line in synsets.read_text().split()]
    covered = {
        offset: classes
        for offset, classes in classes_by_synset(class_offsets, hypernyms).items()
        if offset in class_offsets or (len(classes) <= MOST_CLASSES and not is_person(offset, hypernyms))
    }
    vocabulary: dict[str, list[int]] = {}
    for word in sorted({word for offset in covered for word in words[offset]}):
        known = [offset for offset in senses[word] if offset in covered]
        named = [offset for offset in known if offset in class_offsets]
        vocabulary[word] = sorted(set().union(*(covered[offset] for offset in known[:1] + named)))
    return vocabulary


def as_ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] -> "1-3,7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the lite model's vocabulary.")
    parser.add_argument("wordnet", type=Path, help="folder with WordNet 3.0's data.noun and index.noun")
    parser.add_argument("synsets", type=Path, help="the 1000 ImageNet synsets, one a line, in class order")
    arguments = parser.parse_args()
    vocabulary = build(arguments.wordnet, arguments.synsets)
    document = {"notice": NOTICE, "words": {word: as_ranges(classes) for word, classes in vocabulary.items()}}
    OUTPUT.write_text(json.dumps(document, indent=0, ensure_ascii=True) + "\n", encoding="ascii")
    print(f"{len(vocabulary)} words -> {OUTPUT}")


if __name__ == "__main__":
    main()

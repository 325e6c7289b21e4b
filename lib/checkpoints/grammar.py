"""Text in made-up languages: a seed draws a lexicon and an order of words, a grammar with agreement
makes sentences.

A language has nouns of two classes, verbs, adjectives and particles, words of one to three
syllables that are drawn letter by letter. A sentence is subject, verb and, half of the time, an
object, in the order of the language; a noun's class marks its adjective and, for a subject, the
verb. A paragraph keeps to few nouns. Word frequencies fall as 1 / rank. Everything is drawn by
integers of a seeded generator: the same text on every Python version.
"""

from dataclasses import dataclass

import numpy as np

CONSONANTS, VOWELS = "bdfghklmnprstvz", "aeiou"
ORDERS = ("SVO", "SOV", "VSO", "OVS")
N_NOUNS, N_VERBS, N_ADJECTIVES, N_PARTICLES = 120, 60, 40, 8
NOUNS_OF_PARAGRAPH, SENTENCES_OF_PARAGRAPH = 8, 6


@dataclass(frozen=True)
class Language:
    """Words by kind, the class of each noun, the endings that agree with a class, and the order of
    a sentence.
    """

    nouns: tuple[str, ...]
    classes: tuple[int, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]
    particles: tuple[str, ...]
    endings: tuple[str, str]
    order: str


def language(seed: int) -> Language:
    """The language of a seed."""
    random = np.random.default_rng([seed, 0])
    taken: set[str] = set()

    def words(n: int, most_syllables: int) -> tuple[str, ...]:
        drawn: list[str] = []
        while len(drawn) < n:
            n_syllables = int(random.integers(1, most_syllables + 1))
            letters = [
                kind[int(random.integers(len(kind)))]
                for _ in range(n_syllables)
                for kind in (CONSONANTS, VOWELS)
            ]
            word = "".join(letters) + CONSONANTS[int(random.integers(len(CONSONANTS)))]
            if word not in taken:
                taken.add(word)
                drawn.append(word)
        return tuple(drawn)

    nouns, verbs, adjectives, particles = (
        words(n, most)
        for n, most in ((N_NOUNS, 3), (N_VERBS, 2), (N_ADJECTIVES, 2), (N_PARTICLES, 1))
    )
    classes = tuple(int(random.integers(2)) for _ in nouns)
    first, second = random.permutation(len(VOWELS))[:2]
    order = ORDERS[int(random.integers(len(ORDERS)))]
    return Language(
        nouns, classes, verbs, adjectives, particles, (VOWELS[first], VOWELS[second]), order
    )


def text(seed: int, n_bytes: int, stream: int) -> bytes:
    """`n_bytes` of ASCII text in the language of a seed; streams of one seed are different texts of
    one language.
    """
    spoken, random = language(seed), np.random.default_rng([seed, 1, stream])
    parts: list[str] = []
    length = 0
    while length < n_bytes:
        topic = [_frequent(random, len(spoken.nouns)) for _ in range(NOUNS_OF_PARAGRAPH)]
        sentences = [_sentence(spoken, topic, random) for _ in range(SENTENCES_OF_PARAGRAPH)]
        parts.append(" ".join(sentences) + "\n")
        length += len(parts[-1])
    return "".join(parts).encode("ascii")[:n_bytes]


def shuffled(text: bytes, seed: int) -> bytes:
    """The same bytes in random order: what can be learned of them is how often each occurs."""
    return np.random.default_rng([seed, 2]).permutation(np.frombuffer(text, np.uint8)).tobytes()


def _sentence(spoken: Language, topic: list[int], random: np.random.Generator) -> str:
    subject = topic[int(random.integers(len(topic)))]
    parts = {
        "S": _noun_phrase(spoken, subject, random),
        "V": spoken.verbs[_frequent(random, len(spoken.verbs))]
        + spoken.endings[spoken.classes[subject]],
        "O": _noun_phrase(spoken, topic[int(random.integers(len(topic)))], random)
        if random.integers(2)
        else "",
    }
    said = [parts[part] for part in spoken.order if parts[part]]
    if random.integers(4) == 0:
        said.insert(0, spoken.particles[_frequent(random, len(spoken.particles))])
    return " ".join(said) + "."


def _noun_phrase(spoken: Language, noun: int, random: np.random.Generator) -> str:
    word = spoken.nouns[noun]
    if random.integers(3) == 0:
        adjective = spoken.adjectives[_frequent(random, len(spoken.adjectives))]
        return f"{adjective}{spoken.endings[spoken.classes[noun]]} {word}"
    return word


def _frequent(random: np.random.Generator, n: int) -> int:
    """One of n, number k with a probability proportional to 1 / (k + 1), by whole numbers."""
    weights = np.array([2520 * 1000 // (k + 1) for k in range(n)])
    return int(np.searchsorted(weights.cumsum(), random.integers(weights.sum()), side="right"))

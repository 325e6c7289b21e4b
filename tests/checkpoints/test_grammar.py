from collections import Counter

import pytest

from lib.checkpoints.grammar import language, shuffled, text


def test_the_text_of_a_seed_is_always_the_same_and_as_long_as_asked():
    assert text(0, 1000, 0) == text(0, 1000, 0)
    assert len(text(0, 1000, 0)) == 1000
    assert text(0, 2000, 0)[:1000] == text(0, 1000, 0)


def test_the_first_words_of_the_first_language_are_known():
    """So a change of numpy's generators or of the grammar is noticed, which would change every
    result.
    """
    assert text(0, 60, 0) == b"ziviza ruh gedoba. zaf zivize nok gezude puron. puk ziviza p"


@pytest.mark.parametrize(("one", "other"), [((0, 0), (1, 0)), ((0, 0), (0, 1))])
def test_seeds_and_streams_are_different_texts(one, other):
    assert text(one[0], 500, one[1]) != text(other[0], 500, other[1])


def test_streams_of_a_language_share_their_words_and_languages_do_not():
    words = [set(text(seed, 20000, stream).split()) for seed, stream in ((0, 0), (0, 1), (1, 0))]
    assert len(words[0] & words[1]) > 0.7 * len(words[0])
    assert len(words[0] & words[2]) < 0.1 * len(words[0])


def test_every_verb_agrees_with_the_class_of_its_subject():
    spoken = language(0)
    assert spoken.order == "SVO"
    classes = dict(zip(spoken.nouns, spoken.classes, strict=True))
    n_checked = 0
    for sentence in text(0, 20000, 0).decode().replace("\n", " ").split(". ")[:-1]:
        words = [word for word in sentence.split() if word not in spoken.particles]
        subject = next(i for i, word in enumerate(words) if word in classes)
        verb = words[subject + 1]
        assert verb[:-1] in spoken.verbs, sentence
        assert verb[-1] == spoken.endings[classes[words[subject]]], sentence
        n_checked += 1
    assert n_checked > 400


def test_the_null_has_the_same_bytes_in_another_order():
    begun = text(0, 5000, 0)
    assert Counter(shuffled(begun, 0)) == Counter(begun)
    assert shuffled(begun, 0) != begun
    assert shuffled(begun, 0) == shuffled(begun, 0)

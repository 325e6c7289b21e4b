from lib.checkpoints.grammar import language, text


def test_the_first_words_of_the_first_language_are_known():
    """This notices a change of numpy's generators or of the grammar, which would change every
    result.
    """
    assert text(0, 60, 0) == b"ziviza ruh gedoba. zaf zivize nok gezude puron. puk ziviza p"


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

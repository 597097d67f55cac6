"""Which dictionary words a written form may belong to, by language: endings, changes of the stem and a few irregular verbs."""
import re

# Endings that a form may have, and endings of dictionary words that may stand instead.
ENDINGS = {
    "de": ("e en n s es er ern em st t te ten test tet et nen end ende enden", " e en n eln ern"),
    "fr": ("s x e es ée ées é és er ez ons ent ait ais aient era erai ant ante aux i is it issez", " e er ir re al oir"),
    "es": ("s es a as o os an en e é ó aba ado ada ados adas ando iendo ido ida idos idas me lo la los las le les "
           "arme erme irme ame eme enme anme alo ala alos alas elo ela elos elas amos emos", " o a e ar er ir"),
    "pt": ("s es a as o os am em e ei ou ado ada ados adas ando endo indo ido ida idos idas amos emos", " o a e ar er ir r"),
    "it": ("i e o a hi he ano ono ato ata ati ate uto uta uti ute ito ita iti ite ando endo mi lo la li le ci ne "
           "ami imi alo ala ali ale armi ermi irmi are ere ire amo iamo", " o a e are ere ire io"),
    "ru": ("а у ом е ы и ов ев ей ам ям ами ями ах ях я ю ем ою ой ую юю ая яя ое ее ые ие ых ым ыми ого его ому ему их "
           "им ими ий й ь ью ии ию ием иям иями иях л ла ло ли ют ят ит ет ут ат ешь ишь ете ите йте ьте ься и",
           " а я о е ь й ия ие ый ий ой ть ать ять ить еть ти ться аться иться"),
}
# Changes of a stem, as pattern and replacement; "{}" is the rest of a word.
STEM_CHANGES = {
    "de": [("ä", "a"), ("ö", "o"), ("ü", "u"), ("äu", "au")],
    "fr": [("oi$", "oy"), ("è([^aeiou]+)$", r"e\1"), ("è([^aeiou]+)$", r"é\1"), ("ell$", "el"), ("ett$", "et")],
    "es": [("ie([^aeiou]+)$", r"e\1"), ("ue([^aeiou]+)$", r"o\1"), ("c$", "z"), ("qu$", "c"), ("gu$", "g"), ("ion$", "ión"),
           ("í", "i"), ("á", "a"), ("é", "e"), ("ó", "o"), ("ú", "u"), ("i([^aeiou]+)$", r"e\1")],
    "pt": [("õ$", "ão"), ("n$", "m"), ("i$", "l"), ("a$", "al"), ("qu$", "c"), ("ç$", "c"), ("c$", "ç"), ("i([^aeiou]+)$", r"e\1")],
    "it": [("h$", ""), ("ic$", "ico"), ("c$", "ci"), ("g$", "gi")],
    "ru": [("ж$", "з"), ("ш$", "с"), ("ч$", "к"), ("щ$", "ск"), ("щ$", "ст"), ("к$", "ок"), ("к$", "ек"), ("ц$", "ец"), ("д$", "т"),
           ("ок$", "к"), ("ек$", "к"), ("ен$", "н"), ("он$", "н"), ("л$", ""), ("ем$", "ьм"), ("т$", "ет")],
}
PARTICIPLE = re.compile("^(ab|an|auf|aus|bei|durch|ein|fest|frei|her|herunter|hin|hoch|los|mit|nach|um|vor|weg|weiter|zu|zurück)?"
                        "(ge|zu)(.{3,}?)(t|et|en)$")
IRREGULAR = {
    "de": {"schick": "schicken", "zeig": "zeigen", "such": "suchen", "lösch": "löschen", "gib": "geben", "lies": "lesen", "finde": "finden"},
    "fr": {"envoie": "envoyer", "mets": "mettre", "fais": "faire", "dis": "dire", "veux": "vouloir", "peux": "pouvoir", "écris": "écrire",
           "lis": "lire", "mis": "mettre", "appelle": "appeler", "paie": "payer", "reçu": "reçu", "reçus": "reçu", "choisis": "choisir"},
    "es": {"pon": "poner", "haz": "hacer", "di": "decir", "dime": "decir", "dame": "dar", "ponme": "poner", "hazme": "hacer", "envía": "enviar",
           "busca": "buscar", "muéstrame": "mostrar", "enséñame": "enseñar", "quiero": "querer", "puedo": "poder", "puedes": "poder",
           "juega": "jugar", "suelta": "soltar"},
    "pt": {"põe": "pôr", "ponha": "pôr", "faz": "fazer", "faça": "fazer", "diga": "dizer", "quero": "querer", "posso": "poder", "veja": "ver",
           "envie": "enviar", "ache": "achar", "encontre": "encontrar"},
    "it": {"metti": "mettere", "fai": "fare", "fammi": "fare", "dimmi": "dire", "dammi": "dare", "voglio": "volere", "posso": "potere",
           "trovami": "trovare", "scrivi": "scrivere", "aggiungi": "aggiungere", "leggi": "leggere", "spegni": "spegnere", "togli": "togliere"},
    "ru": {"пришли": "прислать", "найди": "найти", "найдите": "найти", "ищи": "искать", "дай": "дать", "хочу": "хотеть", "могу": "мочь",
           "пошли": "послать", "перешли": "переслать", "закрой": "закрыть", "открой": "открыть", "скажи": "сказать", "людей": "человек",
           "вышли": "выслать", "сними": "снять", "прими": "принять", "поставь": "поставить", "переведи": "перевести", "заведи": "завести",
           "убери": "убрать", "выбери": "выбрать", "собери": "собрать", "пойми": "понять", "узнай": "узнать", "включи": "включить"},
}


def words_of(language, form, known):
    """The words of a dictionary that a form most likely belongs to, the likeliest first: two at most, such as a noun and a
    verb."""
    found = []
    if language == "de" and (match := PARTICIPLE.match(form)):
        word = (match[1] or "") + match[3] + "en"
        if word in known:
            return [word]
    form_endings, word_endings = ENDINGS[language]
    for ending in ["", *form_endings.split()]:
        stem = form[:len(form) - len(ending)]
        if not form.endswith(ending) or len(stem) < 3:
            continue
        changed = [(0, stem)]
        for pattern, replacement in STEM_CHANGES[language]:
            other = re.sub(pattern, replacement, stem)
            if other != stem:
                changed.append((2, other))
        for penalty, stem in changed:
            for word_ending in word_endings.split(" "):
                if stem + word_ending in known:
                    found.append((penalty + len(ending) + 0.9 * len(word_ending), stem + word_ending))
    return list(dict.fromkeys(word for _, word in sorted(found)))[:2]


# The endings of Japanese verbs in the other rows, for each ending of a dictionary form.
JAPANESE = {"う": "いっえおわ", "く": "きいけこか", "ぐ": "ぎいげごが", "す": "しせそさ", "つ": "ちってとた", "ぬ": "にんねのな", "ぶ": "びんべぼば",
            "む": "みんめもま", "る": "りっれろら"}


def japanese_stems(verb):
    """The stems of a Japanese verb, which its forms begin with."""
    stem, ending = verb[:-1], verb[-1]
    if ending not in JAPANESE or not stem:
        return
    if ending == "る" and len(stem) > 1:
        yield stem
    for other in JAPANESE[ending]:
        yield stem + other


def korean_stems(verb):
    """The stem of a Korean verb, and its first syllables before endings that melt into it."""
    stem = verb[:-1]
    yield stem
    last = ord(stem[-1]) - 0xAC00
    if last % 28:
        if last % 28 == 8:  # ㄹ, which falls off before ㄴ and ㅂ
            yield stem[:-1] + chr(0xAC00 + last - 4)
        return
    for final in (4, 8, 17, 20):  # ㄴ ㄹ ㅂ ㅆ
        yield stem[:-1] + chr(0xAC00 + last + final)
    initial, vowel = last // 588, last % 588 // 28
    melted = {20: 6, 8: 9, 13: 14, 18: 4}.get(vowel)  # ㅣ+ㅓ ㅗ+ㅏ ㅜ+ㅓ ㅡ+ㅓ
    if melted is not None:
        for final in (0, 20):
            yield stem[:-1] + chr(0xAC00 + initial * 588 + melted * 28 + final)

//! Recognises the language of a request or of a tool, as far as a search has to know it.
//!
//! Languages of one script are told apart only where that changes a search: English from the other
//! languages in Latin script, and Japanese from Chinese.

use unicode_normalization::UnicodeNormalization;

use crate::text;

/// From this share of its letters on, a text in two scripts is in the language of the script that is
/// not Latin. Product names stay in Latin letters in every language.
const MIN_SHARE_OF_SCRIPT: f32 = 0.3;

/// Bytes that are read of a text. The language of a longer one shows in its beginning.
const MAX_BYTES: usize = 1 << 10;

/// What is known of the language of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// English, and texts without any sign of a language, such as bare names.
    #[default]
    English,
    /// Another language in Latin script.
    OtherLatin,
    /// Han characters without kana.
    Chinese,
    /// Kana, with or without Han characters.
    Japanese,
    /// Hangul.
    Korean,
    /// Cyrillic script.
    Cyrillic,
    /// Any other script.
    Other,
}

impl Language {
    /// Every value, with the name under which it is stored.
    const NAMES: [(Language, &'static str); 7] = [
        (Language::English, "english"),
        (Language::OtherLatin, "other latin"),
        (Language::Chinese, "chinese"),
        (Language::Japanese, "japanese"),
        (Language::Korean, "korean"),
        (Language::Cyrillic, "cyrillic"),
        (Language::Other, "other"),
    ];

    /// The name under which it is stored.
    pub fn name(self) -> &'static str {
        for (language, name) in Self::NAMES {
            if language == self {
                return name;
            }
        }
        "english"
    }

    /// The language of this name.
    pub fn named(name: &str) -> Option<Self> {
        for (language, its_name) in Self::NAMES {
            if its_name == name {
                return Some(language);
            }
        }
        None
    }

    /// The language of a text.
    pub fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        if text.is_ascii() {
            return of_latin(text);
        }
        // Full-width letters become the common ones.
        let text: String = text.nfkc().collect();
        if text::cjk_share(&text) > MIN_SHARE_OF_SCRIPT {
            return of_cjk(&text);
        }
        let (latin, cyrillic, other) = words_by_script(&text);
        let in_other_scripts = (cyrillic + other) as f32;
        if in_other_scripts > MIN_SHARE_OF_SCRIPT * (latin as f32 + in_other_scripts) {
            return if cyrillic >= other {
                Language::Cyrillic
            } else {
                Language::Other
            };
        }
        of_latin(&text)
    }

    /// True for languages that are written without spaces and searched by characters.
    pub fn is_cjk(self) -> bool {
        matches!(
            self,
            Language::Chinese | Language::Japanese | Language::Korean
        )
    }
}

fn of_cjk(text: &str) -> Language {
    // A single kana is enough: Japanese is full of Han characters too.
    if text.contains(|c: char| ('\u{3040}'..='\u{30ff}').contains(&c)) {
        Language::Japanese
    } else if text.contains(|c: char| ('\u{ac00}'..='\u{d7af}').contains(&c)) {
        Language::Korean
    } else {
        Language::Chinese
    }
}

/// The number of words in Latin, in Cyrillic and in any other script.
fn words_by_script(text: &str) -> (usize, usize, usize) {
    let (mut latin, mut cyrillic, mut other) = (0, 0, 0);
    for word in text.split(|c: char| !c.is_alphabetic()) {
        match word.chars().next() {
            None => {}
            Some('\u{400}'..='\u{52f}') => cyrillic += 1,
            Some(c) if (c as u32) < 0x250 || (0x1e00..0x1f00).contains(&(c as u32)) => latin += 1,
            Some(_) => other += 1,
        }
    }
    (latin, cyrillic, other)
}

/// English, or another language in Latin script, by function words and common words of requests.
fn of_latin(text: &str) -> Language {
    let (english, other) = signs(text);
    if other >= 2 && other > 2 * english {
        Language::OtherLatin
    } else {
        Language::English
    }
}

/// How many words of a text are signs of English, and of another language in Latin script; of the
/// latter a sure sign counts twice.
pub(crate) fn signs(text: &str) -> (usize, usize) {
    let (mut english, mut other) = (0, 0);
    // Whole words between spaces: in "de-duplicate" or "es.json" there is no word of a language.
    for (number, word) in text.split_whitespace().enumerate() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        // Only the first word has a capital for being the first: "Ella" further on is a name.
        let lower = lowercase_start(word);
        let as_written = if number == 0 { lower.as_str() } else { word };
        if is_in(ENGLISH, &lower) {
            english += 1;
        } else if is_in(OTHER, as_written) || (!word.is_ascii() && has_accented_lowercase(word)) {
            other += 2;
        } else if is_in(OTHER_SHORT, as_written) || has_elided_article(word) {
            // Short words are also part of names and abbreviations, so they count half.
            other += 1;
        }
    }
    (english, other)
}

/// The word with its first letter in lowercase, as the first word of a sentence is compared.
fn lowercase_start(word: &str) -> String {
    let mut chars = word.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// True for a word such as "année" or "größe", and not for names such as "Zürich".
fn has_accented_lowercase(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_lowercase)
        && word.chars().any(|c| !c.is_ascii() && c.is_lowercase())
}

/// True for "l'issue", "d'un", "dell'utente".
fn has_elided_article(word: &str) -> bool {
    let Some((article, rest)) = word.split_once(['\'', '’']) else {
        return false;
    };
    rest.chars().count() > 2
        && matches!(
            article,
            "l" | "L"
                | "d"
                | "D"
                | "j"
                | "J"
                | "qu"
                | "n"
                | "c"
                | "C"
                | "s"
                | "dell"
                | "all"
                | "un"
                | "nell"
                | "sull"
        )
}

fn is_in(list: &[&str], word: &str) -> bool {
    list.binary_search(&word).is_ok()
}

/// English function words and common words of requests, without those that are words of the other
/// languages too. Sorted, as are the lists below.
const ENGLISH: &[&str] = &[
    "about",
    "add",
    "after",
    "all",
    "an",
    "and",
    "any",
    "are",
    "at",
    "back",
    "be",
    "before",
    "best",
    "between",
    "book",
    "buy",
    "by",
    "can",
    "check",
    "could",
    "create",
    "current",
    "data",
    "day",
    "delete",
    "details",
    "did",
    "does",
    "each",
    "every",
    "fetch",
    "find",
    "first",
    "for",
    "free",
    "from",
    "game",
    "generate",
    "get",
    "give",
    "good",
    "had",
    "has",
    "have",
    "help",
    "how",
    "if",
    "information",
    "into",
    "is",
    "it",
    "its",
    "know",
    "last",
    "latest",
    "less",
    "like",
    "link",
    "list",
    "look",
    "make",
    "many",
    "most",
    "movie",
    "music",
    "my",
    "name",
    "near",
    "need",
    "new",
    "news",
    "next",
    "not",
    "of",
    "off",
    "on",
    "one",
    "open",
    "or",
    "order",
    "our",
    "out",
    "over",
    "play",
    "please",
    "price",
    "read",
    "recent",
    "remove",
    "retrieve",
    "search",
    "see",
    "send",
    "set",
    "should",
    "show",
    "some",
    "start",
    "stop",
    "story",
    "such",
    "tell",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "time",
    "to",
    "today",
    "tomorrow",
    "top",
    "two",
    "under",
    "up",
    "update",
    "us",
    "use",
    "using",
    "watch",
    "way",
    "we",
    "weather",
    "week",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "who",
    "why",
    "will",
    "with",
    "without",
    "word",
    "work",
    "would",
    "you",
    "your",
];

/// Function words and common words of requests in Spanish, Portuguese, French, German and Italian that
/// are no English words.
const OTHER: &[&str] = &[
    "abre",
    "abrir",
    "acerca",
    "actualiza",
    "actualizar",
    "affiche",
    "afficher",
    "aggiorna",
    "aggiungere",
    "aggiungi",
    "agrega",
    "aiutami",
    "ajoute",
    "ajouter",
    "ajuda",
    "ajuda-me",
    "aktuelle",
    "aktuellen",
    "alla",
    "alle",
    "alles",
    "andere",
    "annuler",
    "apaga",
    "apagar",
    "aprire",
    "archivo",
    "archivos",
    "arquivo",
    "arquivos",
    "até",
    "auch",
    "aucun",
    "auf",
    "aujourd",
    "aus",
    "avec",
    "ayer",
    "ayuda",
    "ayúdame",
    "bei",
    "beim",
    "bene",
    "bisogno",
    "bitte",
    "borra",
    "borrar",
    "brauche",
    "busca",
    "buscar",
    "cambia",
    "cambiar",
    "cancela",
    "cancelar",
    "carica",
    "caricare",
    "carpeta",
    "cerca",
    "che",
    "cherche",
    "chercher",
    "chi",
    "combien",
    "comme",
    "comprar",
    "configura",
    "connaître",
    "convertir",
    "convierte",
    "correo",
    "correos",
    "cosa",
    "crear",
    "cria",
    "criar",
    "créer",
    "créez",
    "cuales",
    "cuenta",
    "cuál",
    "cuáles",
    "cuándo",
    "cuántas",
    "cuánto",
    "cuántos",
    "dame",
    "dans",
    "dass",
    "dela",
    "della",
    "delle",
    "dello",
    "demain",
    "depuis",
    "derniers",
    "dernière",
    "desde",
    "deve",
    "devo",
    "diese",
    "diesem",
    "diesen",
    "dieser",
    "dieses",
    "dime",
    "dis-moi",
    "domani",
    "donde",
    "dónde",
    "ein",
    "eine",
    "einem",
    "einen",
    "einer",
    "eines",
    "elimina",
    "eliminar",
    "ellos",
    "encontrar",
    "encontre",
    "encuentra",
    "enseña",
    "envia",
    "enviar",
    "envie",
    "envoie",
    "envoyer",
    "envíale",
    "envíe",
    "erste",
    "erstelle",
    "erstellen",
    "escreva",
    "escribe",
    "esta",
    "estado",
    "estamos",
    "estas",
    "esto",
    "estos",
    "está",
    "están",
    "estão",
    "etwas",
    "euer",
    "faire",
    "fais",
    "fait",
    "falta",
    "fechar",
    "ficheiro",
    "fichier",
    "fichiers",
    "finde",
    "finden",
    "foram",
    "füge",
    "für",
    "geben",
    "gehört",
    "gelöscht",
    "generar",
    "gestern",
    "gib",
    "giorni",
    "gli",
    "gracias",
    "grazie",
    "ha",
    "habe",
    "haben",
    "hacer",
    "haz",
    "herunterladen",
    "heute",
    "hier",
    "hinzu",
    "hoje",
    "hoy",
    "ich",
    "ihr",
    "ihre",
    "inserisci",
    "invia",
    "inviare",
    "isso",
    "ist",
    "je",
    "jemand",
    "jeudi",
    "kann",
    "kannst",
    "können",
    "könntest",
    "lass",
    "leggi",
    "letzte",
    "letzten",
    "lista",
    "listar",
    "liste-moi",
    "lundi",
    "lösche",
    "löschen",
    "mach",
    "manda",
    "mandar",
    "martes",
    "mañana",
    "me-diga",
    "mein",
    "meine",
    "meinem",
    "meinen",
    "meiner",
    "mensagem",
    "mensaje",
    "mensajes",
    "messaggio",
    "mettez",
    "mettre",
    "meu",
    "meus",
    "mich",
    "minha",
    "minhas",
    "mio",
    "mir",
    "moi",
    "montre",
    "montre-moi",
    "mostra",
    "mostrar",
    "mostre",
    "muestra",
    "muestrame",
    "mueve",
    "muéstrame",
    "nach",
    "nachricht",
    "necesita",
    "necesito",
    "neue",
    "neuen",
    "neuer",
    "neues",
    "nicht",
    "noch",
    "nos",
    "nossa",
    "nosso",
    "notre",
    "nous",
    "nouveau",
    "nouvelle",
    "nueva",
    "nuevo",
    "nuova",
    "nuovo",
    "não",
    "número",
    "oder",
    "olá",
    "onde",
    "ontem",
    "ottenere",
    "où",
    "para",
    "parce",
    "pasada",
    "pasado",
    "passado",
    "peux",
    "peux-tu",
    "piacere",
    "pode",
    "poderia",
    "podes",
    "por",
    "porque",
    "posso",
    "pourrais",
    "prochain",
    "proche",
    "próxima",
    "próximo",
    "puede",
    "puedes",
    "puedo",
    "pues",
    "puoi",
    "quais",
    "qual",
    "qualcuno",
    "quale",
    "quali",
    "quand",
    "quando",
    "quanti",
    "quanto",
    "que",
    "quel",
    "quelle",
    "quelles",
    "quelqu",
    "quelqu'un",
    "quels",
    "quem",
    "qui",
    "quiero",
    "quién",
    "quoi",
    "qué",
    "recherche",
    "rechercher",
    "remover",
    "reserva",
    "reservar",
    "riunione",
    "rufe",
    "sabe",
    "schick",
    "schicke",
    "sein",
    "seine",
    "semana",
    "sende",
    "senden",
    "settimana",
    "sich",
    "sind",
    "sobre",
    "sono",
    "sont",
    "sowie",
    "starte",
    "stelle",
    "subir",
    "suche",
    "suchen",
    "sulla",
    "supprime",
    "supprimer",
    "tarea",
    "tareas",
    "tous",
    "toute",
    "toutes",
    "traduce",
    "traduci",
    "traduire",
    "traduis",
    "traduz",
    "traduzir",
    "trouve",
    "trouver",
    "trova",
    "trovare",
    "tudo",
    "tutte",
    "tutti",
    "tutto",
    "têm",
    "uma",
    "und",
    "une",
    "unser",
    "unsere",
    "unter",
    "usando",
    "verschiebe",
    "veux",
    "vezes",
    "vicino",
    "viernes",
    "voglio",
    "voli",
    "vom",
    "von",
    "vor",
    "vorrei",
    "votre",
    "vous",
    "wann",
    "welche",
    "welchen",
    "welcher",
    "welches",
    "wenn",
    "wer",
    "werden",
    "wie",
    "wieder",
    "wir",
    "wird",
    "wo",
    "wurde",
    "zeig",
    "zeige",
    "zeigen",
    "zum",
    "zur",
    "zurück",
    "zwei",
    "zwischen",
    "às",
    "ça",
    "é",
    "él",
    "électronique",
    "última",
    "últimas",
    "último",
    "últimos",
    "über",
    "übersetze",
];

/// Articles and short words of these languages, which also occur in names and abbreviations.
const OTHER_SHORT: &[&str] = &[
    "al", "ao", "aos", "au", "aux", "como", "con", "das", "de", "dei", "del", "dem", "den", "der",
    "des", "di", "domingo", "du", "el", "ella", "em", "en", "es", "est", "et", "gern", "hola",
    "il", "im", "la", "las", "le", "les", "lo", "los", "mes", "mi", "mis", "mit", "mon", "morgen",
    "na", "nas", "nel", "ni", "nur", "ou", "pas", "più", "ses", "sin", "sua", "sur", "um", "un",
    "una", "ver", "y", "zu",
];

/// True for a word of these languages that says nothing alone, as it comes from [`text::words`].
pub(crate) fn is_function_word(word: &str) -> bool {
    is_in(FUNCTION_WORDS, word)
}

/// Articles, pronouns, prepositions and particles of German, French, Spanish, Portuguese, Italian,
/// Russian, Chinese, Japanese and Korean, without accents, and without those that abbreviate something,
/// such as "os" and "ai".
const FUNCTION_WORDS: &[&str] = &[
    "a", "al", "alla", "ao", "aos", "as", "au", "aux", "ce", "ces", "cette", "che", "chi", "como",
    "con", "cual", "da", "dal", "das", "de", "dei", "del", "della", "delle", "dem", "den", "der",
    "di", "die", "do", "dos", "du", "e", "ein", "eine", "einem", "einen", "einer", "eines", "el",
    "ela", "ele", "ella", "elle", "em", "en", "es", "essa", "esse", "est", "esta", "este", "et",
    "eu", "fur", "gli", "ho", "i", "il", "ils", "im", "in", "ist", "ja", "je", "la", "las", "le",
    "les", "leur", "lo", "los", "ma", "mi", "na", "nas", "ne", "nein", "nel", "nella", "no", "non",
    "nos", "nous", "o", "oder", "ou", "par", "para", "pas", "per", "por", "qual", "quale", "quali",
    "que", "quel", "quelle", "quem", "questo", "qui", "quien", "se", "seu", "si", "sua", "sul",
    "sur", "sus", "tu", "um", "uma", "un", "una", "unas", "und", "une", "uno", "unos", "von",
    "vous", "was", "wer", "wie", "wo", "y", "yo", "zu", "zum", "zur", "а", "в", "во", "все", "вы",
    "да", "для", "до", "его", "ее", "же", "за", "и", "из", "или", "их", "к", "как", "ко", "кто",
    "ли", "меня", "мне", "мои", "мы", "на", "не", "него", "нет", "ни", "но", "о", "об", "он",
    "она", "они", "от", "по", "при", "с", "со", "так", "то", "ты", "у", "что", "это", "я", "あれ",
    "か", "から", "が", "この", "これ", "その", "それ", "で", "です", "と", "な", "に", "ね", "の",
    "は", "へ", "ます", "まで", "も", "よ", "を", "不", "与", "也", "了", "什么", "他", "们", "你",
    "你们", "吗", "吧", "呀", "呢", "和", "啊", "在", "她", "它", "很", "我", "我们", "是", "有",
    "的", "着", "请", "过", "这", "那", "都", "가", "과", "그", "는", "도", "로", "를", "에",
    "에서", "와", "으로", "은", "을", "의", "이", "이다", "저",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised_by_script_and_by_words() {
        let cases = [
            (
                Language::English,
                "delete the old backups in Zürich and find a café",
            ),
            (Language::English, "weather los angeles"),
            (Language::English, "call Ella"),
            (Language::English, "de-duplicate records"),
            (
                Language::English,
                "translate 你好 into French for me please",
            ),
            (Language::English, "create_issue"),
            (Language::English, "🙂 42"),
            (Language::English, "x"),
            (Language::English, ""),
            (Language::OtherLatin, "crear tarea"),
            (Language::OtherLatin, "no me llega el correo"),
            (Language::OtherLatin, "Was ist in der Datei?"),
            (
                Language::OtherLatin,
                "Envía un correo a Juan con el informe",
            ),
            (Language::OtherLatin, "qual é o tempo em Lisboa"),
            (Language::OtherLatin, "montre-moi mes factures"),
            (Language::OtherLatin, "Zeige mir alle offenen Tickets"),
            (Language::OtherLatin, "trova il file nel progetto GitHub"),
            (Language::Chinese, "在 GitHub 上新建一个 issue"),
            (Language::Chinese, "查"),
            (Language::Chinese, "檢查資料庫"),
            (Language::Japanese, "明日の天気を調べて"),
            (Language::Korean, "내일 날씨 알려줘"),
            (Language::Cyrillic, "создай задачу в Jira"),
            (Language::Other, "أنشئ مهمة في Jira"),
            (Language::English, "ｌｉｓｔ ｔｈｅ ｆｉｌｅｓ"),
        ];
        for (language, text) in cases {
            assert_eq!(Language::of(text), language, "{text}");
        }
    }

    #[test]
    fn the_lists_are_sorted_and_disjoint() {
        for list in [ENGLISH, OTHER, OTHER_SHORT, FUNCTION_WORDS] {
            assert!(list.is_sorted());
        }
        for word in ENGLISH {
            assert!(!is_in(OTHER, word) && !is_in(OTHER_SHORT, word), "{word}");
        }
    }
}

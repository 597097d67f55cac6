//! The announcement of a search on the web, in the language of the question.

use serde_json::Value;
use toolscout_index::language::Language;

use toolscout_base::printable::excerpt;
use toolscout_gate::tools::Arguments;

/// Most characters of a query that are shown.
const MAX_QUERY_CHARS: usize = 300;
/// The arguments in which tools take a query.
const QUERY_ARGUMENTS: [&str; 6] = [
    "query",
    "q",
    "queries",
    "search_query",
    "keywords",
    "keyword",
];

/// The announcement in each language that is told apart here.
const ENGLISH: &str = "🔍 Searching for information:";
const CHINESE: &str = "🔍 正在搜索信息:";
const JAPANESE: &str = "🔍 情報を検索しています:";
const KOREAN: &str = "🔍 정보를 검색하고 있습니다:";
const RUSSIAN: &str = "🔍 Ищу информацию:";
const GERMAN: &str = "🔍 Suche nach Informationen:";
const FRENCH: &str = "🔍 Recherche d'informations :";
const SPANISH: &str = "🔍 Buscando información:";
const ITALIAN: &str = "🔍 Ricerca di informazioni:";
const PORTUGUESE: &str = "🔍 Pesquisando informações:";

/// Frequent words of each language in Latin script, and letters that it alone has of these five. The
/// engine tells only English from all others, since a search needs no more.
const LATIN: [(&str, &[&str], &str); 5] = [
    (
        GERMAN,
        &[
            "auf", "aus", "bei", "bitte", "das", "dem", "den", "der", "die", "ein", "eine",
            "einen", "es", "für", "gibt", "hat", "heute", "ich", "im", "ist", "kann", "man",
            "mein", "meine", "mir", "mit", "morgen", "nach", "nicht", "sind", "suche", "über",
            "und", "von", "war", "warum", "was", "welche", "welcher", "wann", "wer", "wetter",
            "wie", "wird", "wo", "zu", "zum", "zur",
        ],
        "äß",
    ),
    (
        FRENCH,
        &[
            "au",
            "aujourd'hui",
            "aux",
            "avec",
            "ce",
            "cette",
            "cherche",
            "combien",
            "comment",
            "dans",
            "de",
            "des",
            "du",
            "elle",
            "en",
            "est",
            "et",
            "il",
            "je",
            "la",
            "le",
            "les",
            "ma",
            "mes",
            "mon",
            "où",
            "par",
            "pas",
            "pour",
            "pourquoi",
            "quand",
            "que",
            "quel",
            "quelle",
            "quelles",
            "quels",
            "qui",
            "quoi",
            "sont",
            "sur",
            "trouve",
            "un",
            "une",
            "vous",
        ],
        "êëïœùûî",
    ),
    (
        SPANISH,
        &[
            "busca", "cómo", "con", "cuál", "cuándo", "cuánto", "cuántos", "de", "del", "donde",
            "dónde", "el", "ella", "en", "es", "esta", "está", "este", "hay", "hoy", "la", "las",
            "los", "mañana", "me", "mi", "no", "para", "por", "que", "qué", "quién", "quiero",
            "se", "son", "su", "tiempo", "un", "una", "y",
        ],
        "ñ¿¡",
    ),
    (
        ITALIAN,
        &[
            "al", "alla", "che", "chi", "come", "con", "cosa", "cerca", "da", "dal", "dei", "del",
            "della", "delle", "di", "domani", "dove", "e", "è", "gli", "il", "in", "la", "le",
            "lo", "mi", "nel", "nella", "oggi", "per", "perché", "qual", "quale", "quali",
            "quando", "quanto", "sono", "su", "sul", "trova", "un", "una",
        ],
        "ìò",
    ),
    (
        PORTUGUESE,
        &[
            "amanhã", "ao", "as", "com", "como", "da", "das", "de", "do", "dos", "e", "ela", "ele",
            "em", "eu", "foi", "hoje", "mais", "me", "meu", "minha", "na", "não", "no", "o",
            "onde", "os", "para", "pela", "pelo", "por", "porque", "procure", "qual", "quando",
            "quanto", "que", "quem", "são", "sobre", "um", "uma", "você",
        ],
        "ãõ",
    ),
];

/// The announcement of a search with these arguments; `None` where they hold no query.
pub fn of_search(question: &str, arguments: &Arguments) -> Option<String> {
    for name in QUERY_ARGUMENTS {
        if let Some(given) = arguments.get(name)
            && let Some(query) = query_of(given)
        {
            let query = excerpt(&query, MAX_QUERY_CHARS);
            return Some(format!("{} {query}", in_language_of(question)));
        }
    }
    None
}

/// The text of a query, or of several.
fn query_of(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(texts) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            texts.join(", ")
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn in_language_of(question: &str) -> &'static str {
    match Language::of(question) {
        Language::Chinese => CHINESE,
        Language::Japanese => JAPANESE,
        Language::Korean => KOREAN,
        Language::Cyrillic => RUSSIAN,
        Language::OtherLatin => in_latin_script(question),
        Language::English | Language::Other => ENGLISH,
    }
}

/// The announcement of the language whose words and letters the question has most of.
fn in_latin_script(question: &str) -> &'static str {
    let text = question.to_lowercase();
    let (mut best, mut most) = (ENGLISH, 0);
    for (announcement, words, letters) in LATIN {
        let of_words = text
            .split(|c: char| !c.is_alphabetic() && c != '\'')
            .filter(|word| words.contains(word))
            .count();
        let of_letters = text.chars().filter(|c| letters.contains(*c)).count();
        // A letter that no other of them has says more than a short word.
        let signs = of_words + 2 * of_letters;
        if signs > most {
            (best, most) = (announcement, signs);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_search_is_announced_in_the_language_of_the_question() {
        for (question, announcement) in [
            ("Who won the last Tour de France?", ENGLISH),
            ("谁赢得了上一届环法自行车赛?", CHINESE),
            ("昨日の試合は誰が勝ちましたか", JAPANESE),
            ("어제 경기는 누가 이겼나요?", KOREAN),
            ("Кто выиграл последний матч?", RUSSIAN),
            ("Wer hat die letzte Tour de France gewonnen?", GERMAN),
            ("Qui a gagné le dernier Tour de France ?", FRENCH),
            ("¿Quién ganó el último Tour de Francia?", SPANISH),
            ("Chi ha vinto l'ultimo Giro d'Italia?", ITALIAN),
            ("Quem ganhou a última Copa do Mundo e onde foi?", PORTUGUESE),
            ("متى تبدأ المباراة؟", ENGLISH),
        ] {
            let arguments = json!({ "query": "Q" }).as_object().unwrap().clone();
            let announced = of_search(question, &arguments).unwrap();
            assert_eq!(announced, format!("{announcement} Q"), "{question}");
        }
    }

    /// How many of the requests of `fixtures/languages` are announced in their own language.
    #[test]
    fn requests_of_the_sets_are_told_apart() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/languages/");
        for (file, announcement) in [
            ("de", GERMAN),
            ("fr", FRENCH),
            ("es", SPANISH),
            ("it", ITALIAN),
            ("pt", PORTUGUESE),
            ("ja", JAPANESE),
            ("ko", KOREAN),
            ("ru", RUSSIAN),
            ("zh", CHINESE),
            ("en", ENGLISH),
        ] {
            let text = std::fs::read_to_string(format!("{folder}{file}.jsonl")).unwrap();
            let requests: Vec<String> = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .filter_map(|line| line["query"].as_str().map(str::to_owned))
                .collect();
            let own = |request: &&String| in_language_of(request) == announcement;
            let right = requests.iter().filter(own).count();
            assert!(!requests.is_empty());
            assert!(
                right * 10 >= requests.len() * 8,
                "{file}: {right} of {}",
                requests.len()
            );
        }
    }

    #[test]
    fn the_query_is_found_in_the_arguments_of_any_search_tool() {
        let of = |arguments: Value| {
            let arguments = arguments.as_object().unwrap().clone();
            of_search("what is new?", &arguments)
        };
        let announced = |query: &str| Some(format!("{ENGLISH} {query}"));
        assert_eq!(of(json!({ "q": " rain " })), announced("rain"));
        assert_eq!(of(json!({ "queries": ["a", "b"] })), announced("a, b"));
        assert_eq!(of(json!({ "query": "", "keywords": "c" })), announced("c"));
        assert_eq!(of(json!({ "url": "https://a.example" })), None);
    }
}

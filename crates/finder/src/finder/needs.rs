//! Arguments that a found tool requires and that the search does not name, such as a date. Only kinds of
//! values are looked for whose presence a text shows in every language.

use serde_json::{Map, Value};
use toolscout_index::{Match, Tool, text};

use super::search::FoundTool;

/// Hits that are looked at if none of them fits well. If one does, it is the first.
const MAX_HITS: usize = 3;
/// Digits of the shortest telephone number.
const MIN_PHONE_DIGITS: usize = 5;

/// A kind of argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Date,
    Email,
    Url,
    Phone,
    Coordinates,
}

impl Kind {
    /// What a parameter holds, by the format of its schema, or else by the last word of its name.
    fn of(name: &str, schema: &Map<String, Value>) -> Option<Kind> {
        // A model can choose one of the listed values, or leave the default.
        if schema.contains_key("enum") || schema.contains_key("default") {
            return None;
        }
        let format = schema.get("format").and_then(Value::as_str);
        match format {
            Some("date" | "date-time" | "time") => return Some(Kind::Date),
            Some("email" | "idn-email") => return Some(Kind::Email),
            Some("uri" | "url" | "iri") => return Some(Kind::Url),
            Some("phone") => return Some(Kind::Phone),
            _ => {}
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string" | "number") | None => {}
            _ => return None,
        }
        let spaced = text::spaced(name).to_lowercase();
        match spaced.split_whitespace().next_back()? {
            "date" | "datetime" => Some(Kind::Date),
            "email" => Some(Kind::Email),
            "url" | "uri" => Some(Kind::Url),
            "phone" => Some(Kind::Phone),
            "latitude" | "longitude" | "lat" | "lon" | "lng" => Some(Kind::Coordinates),
            _ => None,
        }
    }

    fn with_article(self) -> &'static str {
        match self {
            Kind::Date => "a date or time",
            Kind::Email => "an email address",
            Kind::Url => "a URL",
            Kind::Phone => "a telephone number",
            Kind::Coordinates => "coordinates",
        }
    }

    /// Whether a text may have such a value. In doubt it has.
    fn is_in(self, text: &str) -> bool {
        match self {
            Kind::Date => text.contains(char::is_numeric) || has_word_of_time(text),
            Kind::Email => contains_any(text, &["@", "[at]", "(at)", " at "]),
            Kind::Url => text.split_whitespace().any(is_address),
            Kind::Phone => text.chars().filter(|c| c.is_numeric()).count() >= MIN_PHONE_DIGITS,
            Kind::Coordinates => text.contains(char::is_numeric),
        }
    }
}

/// Characters of the longest words that are compared whole. Longer ones are compared as beginnings, since
/// words are inflected.
const MAX_WHOLE_CHARS: usize = 4;

/// Words for days, months and times: English, German, French, Spanish, Portuguese, Italian and Russian ones, and
/// at the end short forms and other forms of short words.
const OF_TIME: &str = "
    today tonight tomorrow yesterday now noon midnight morning evening afternoon weekend week month year day
    hour monday tuesday wednesday thursday friday saturday sunday january february march april may june july
    august september october november december latest current recent next last
    heute morgen gestern jetzt mittag abend woche monat jahr tag stunde montag dienstag mittwoch donnerstag
    freitag samstag sonntag januar februar märz mai juni juli oktober dezember
    aujourd demain hier maintenant midi soir matin semaine mois année jour heure lundi mardi mercredi jeudi
    vendredi samedi dimanche janvier février mars avril juin juillet août septembre octobre novembre
    décembre
    hoy mañana ayer ahora noche semana mes año día hora lunes martes miércoles jueves viernes sábado domingo
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre hoje amanhã
    ontem agora noite mês ano dia segunda terça quarta quinta sexta janeiro fevereiro março maio junho julho
    setembro outubro novembro dezembro oggi domani ieri adesso sera settimana mese anno giorno ora lunedì
    martedì mercoledì giovedì venerdì sabato domenica gennaio febbraio aprile maggio giugno luglio settembre
    ottobre dicembre
    сегодня завтра вчера сейчас утром вечер недел месяц год года день дня час понедельник вторник среду
    четверг пятниц суббот воскресень январ феврал март апрел мая июн июл август сентябр октябр ноябр декабр
    days hours weeks years soon half clock asap minute fortnight quarter mon tue tues wed thu thurs fri sat
    sun jan feb apr jun jul aug sept oct nov dec am pm christmas easter tage tagen jahre jahren stund
    übermorgen uebermorgen vorgestern bald sofort weihnacht silvester ostern uhr jours après noël pâques
    bientôt días años pasado pronto navidad minuto depois natal anos dias dopodomani presto natale anni
    giorni mesi ore послезавтра позавчера дней скоро минут рождеств
";

/// The same in languages whose words are not apart, where they are found anywhere.
const OF_TIME_ANYWHERE: &str = "
    今 明 昨 天 日 周 週 星期 月 年 点 時 时 早上 晚上 오늘 내일 어제 모레 지금 요일 주말 아침 저녁
";

fn has_word_of_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut words = text.split(|letter: char| !letter.is_alphabetic());
    let mut anywhere = OF_TIME_ANYWHERE.split_whitespace();
    words.any(is_of_time) || anywhere.any(|known| text.contains(known))
}

fn is_of_time(word: &str) -> bool {
    for known in OF_TIME.split_whitespace() {
        let is_same = match known.chars().count() {
            0..=MAX_WHOLE_CHARS => word == known,
            _ => word.starts_with(known),
        };
        if is_same {
            return true;
        }
    }
    false
}

fn contains_any(text: &str, signs: &[&str]) -> bool {
    signs.iter().any(|sign| text.contains(sign))
}

/// As `https://example.com`, `example.com`, `localhost:8080` and `192.168.0.1` are.
fn is_address(word: &str) -> bool {
    if contains_any(word, &["://", "localhost"]) {
        return true;
    }
    // A dot at the end of a word ends a sentence.
    match word.split_once('.') {
        Some((before, after)) => {
            before.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric)
        }
        None => false,
    }
}

/// A line for each of the best hits that requires what its query does not name.
pub(super) fn of_hits(hits: &[FoundTool], queries: &[String], matched: Match) -> Vec<String> {
    let count = match matched {
        Match::Good => 1,
        Match::Possible | Match::None => MAX_HITS,
    };
    let mut lines = Vec::new();
    for hit in hits.iter().take(count) {
        // A selected tool was not asked for by what it should do.
        let Some(query) = hit.query.and_then(|query| queries.get(query)) else {
            continue;
        };
        let needs = of_tool(&hit.tool, query);
        if !needs.is_empty() {
            lines.push(format!("{}: {}", hit.tool.id.name(), needs.join(", ")));
        }
    }
    lines
}

/// What the tool requires and the query does not name, each kind with its first parameter.
fn of_tool(tool: &Tool, query: &str) -> Vec<String> {
    let schema = &tool.input_schema;
    let mut needs = Vec::new();
    let (Some(Value::Array(required)), Some(properties)) =
        (schema.get("required"), schema.get("properties"))
    else {
        return needs;
    };
    let mut kinds = Vec::new();
    for name in required.iter().filter_map(Value::as_str) {
        let Some(Value::Object(parameter)) = properties.get(name) else {
            continue;
        };
        let Some(kind) = Kind::of(name, parameter) else {
            continue;
        };
        // One line for the two ends of a span of time, or for latitude and longitude.
        if kinds.contains(&kind) {
            continue;
        }
        kinds.push(kind);
        if !kind.is_in(query) {
            needs.push(format!("{} ({name})", kind.with_article()));
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needs(properties: Value, query: &str) -> Vec<String> {
        let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
        let schema = json!({ "type": "object", "properties": properties, "required": names });
        let mut tool = Tool::new("s", "t").unwrap();
        tool.input_schema = schema.as_object().unwrap().clone();
        of_tool(&tool, query)
    }

    #[test]
    fn what_is_required_and_not_named_is_said() {
        let date = json!({ "departure_date": { "type": "string" }, "city": { "type": "string" } });
        let lacking = ["a date or time (departure_date)"];
        for query in [
            "book a flight to Rome",
            "einen Flug nach Rom buchen",
            "забронировать рейс",
        ] {
            assert_eq!(needs(date.clone(), query), lacking, "{query}");
        }
        for query in [
            "book a flight to Rome tomorrow",
            "book a flight in two weeks",
            "book a flight in ten days",
            "book a flight on Fri",
            "book a flight at Christmas",
            "ein Flug in drei Tagen",
            "ein Flug übermorgen",
            "un volo dopodomani",
            "рейс послезавтра",
            "모레 항공편",
            "book a flight on 3/4",
            "ein Flug am Montag",
            "рейс в субботу",
            "明天的航班",
            "내일 항공편",
            "un vuelo el martes",
        ] {
            assert_eq!(needs(date.clone(), query), [""; 0], "{query}");
        }
    }

    #[test]
    fn each_kind_is_known_by_its_format_or_its_name() {
        let rows = [
            (
                json!({ "to": { "type": "string", "format": "email" } }),
                "mail Ann",
                "mail ann@example.com",
            ),
            (
                json!({ "userEmail": { "type": "string" } }),
                "mail Ann",
                "mail ann@example.com",
            ),
            (json!({ "url": {} }), "read the page", "read example.com/a"),
            (
                json!({ "url": {} }),
                "read the page.",
                "read localhost:8080",
            ),
            (json!({ "url": {} }), "read it", "read 192.168.0.1"),
            (
                json!({ "to_phone": { "type": "string" } }),
                "call Ann 2 times",
                "call +49 123 456",
            ),
            (
                json!({ "lat": { "type": "number" }, "lon": { "type": "number" } }),
                "rain in Rome",
                "rain at 41.9, 12.5",
            ),
            (
                json!({ "when": { "type": "string", "format": "date-time" } }),
                "remind me",
                "remind me at noon",
            ),
        ];
        for (properties, without, with) in rows {
            assert_eq!(
                needs(properties.clone(), without).len(),
                1,
                "{without}: {properties}"
            );
            assert_eq!(
                needs(properties.clone(), with),
                [""; 0],
                "{with}: {properties}"
            );
        }
    }

    #[test]
    fn nothing_is_said_of_what_has_a_default_a_choice_or_another_type() {
        let rows = [
            json!({ "date": { "type": "string", "default": "today" } }),
            json!({ "date": { "enum": ["a", "b"] } }),
            json!({ "date": { "type": "boolean" } }),
            json!({ "update": { "type": "string" } }),
        ];
        for properties in rows {
            assert_eq!(needs(properties.clone(), "do it"), [""; 0], "{properties}");
        }
    }
}

//! Why a model cannot read a part of a long result.

use serde_json::Value;
use thiserror::Error;
use toolscout_base::printable::excerpt;

/// Characters of a pointer and of field names in messages.
const NAME_CHARS: usize = 60;
/// Names in a message.
const MAX_NAMES: usize = 20;

/// What is wrong with the arguments of `read_more`, in words for the model.
#[derive(Debug, PartialEq, Error)]
pub enum ReadMoreError {
    /// No result is named.
    #[error("give `output`, the name in the note at the end of the result")]
    NoOutput,
    /// Nothing is kept, so the result never was.
    #[error("there is no output {0:?}; call the tool again")]
    NothingKept(String),
    /// The result is not kept any more, and the names of others are secret.
    #[error("there is no output {0:?} any more; call the tool again")]
    Gone(String),
    /// The result is not kept any more, and these are.
    #[error("there is no output {name:?} any more; there are {kept}; else call the tool again")]
    GoneBeside {
        /// The beginning of the name.
        name: String,
        /// The names of those that are kept.
        kept: String,
    },
    /// A part of a text is selected that has none.
    #[error("{0} is not JSON; read it with `from` and `find`")]
    NotJson(String),
    /// An argument that is none.
    #[error("there is no argument {given:?}; there are {known}")]
    Argument {
        /// The beginning of its name.
        given: String,
        /// Those that there are.
        known: String,
    },
    /// A number of bytes that is none.
    #[error("`{0}` must be a number of bytes, 0 or more")]
    Bytes(&'static str),
    /// The part would begin after the end.
    #[error("{name} has {bytes} bytes; `from` must be less")]
    PastEnd {
        /// The result.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// A text that is looked for is not there.
    #[error("{wanted:?} is not in {name} after byte {from}")]
    NotFound {
        /// The beginning of the text.
        wanted: String,
        /// The result.
        name: String,
        /// Where the search began.
        from: usize,
    },
    /// `select` is no text.
    #[error("`select` must be a text, such as \"/items/*/title\"")]
    Select,
    /// `select` is no pointer.
    #[error(
        "`select` must begin with \"/\", as a JSON Pointer does: {pointer:?}",
        pointer = format!("/{}", excerpt(.0, NAME_CHARS))
    )]
    Pointer(String),
    /// `fields` are no names.
    #[error("`fields` must be an array of names")]
    Fields,
    /// `select` and `fields` are too long to be repeated on each page.
    #[error("`select` and `fields` have {bytes} bytes, {most} are allowed")]
    LongPart {
        /// Their length.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The pointer leads to nothing.
    #[error(
        "nothing is at {pointer:?}: {path:?} {there}",
        pointer = excerpt(pointer, NAME_CHARS),
        path = excerpt(path, NAME_CHARS)
    )]
    NothingThere {
        /// The pointer.
        pointer: String,
        /// Its part that leads to something.
        path: String,
        /// What is there.
        there: There,
    },
    /// No selected object has one of the fields.
    #[error(
        "no object has a field {fields}; the first one {first}",
        fields = excerpt(fields, NAME_CHARS)
    )]
    NoField {
        /// The fields.
        fields: String,
        /// The first of the objects.
        first: There,
    },
}

/// For places that hand messages of many kinds to the model.
impl From<ReadMoreError> for String {
    fn from(error: ReadMoreError) -> Self {
        error.to_string()
    }
}

/// What a value is, in words.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct There(String);

impl There {
    pub(super) fn of(value: &Value) -> Self {
        There(match value {
            Value::Object(fields) => {
                let names = fields.keys().take(MAX_NAMES);
                let names: Vec<String> = names.map(|name| excerpt(name, NAME_CHARS)).collect();
                match fields.len() - names.len() {
                    0 => format!("has the fields {}", names.join(", ")),
                    more => format!("has the fields {} and {more} more", names.join(", ")),
                }
            }
            Value::Array(items) => format!("has {} elements, numbered from 0", items.len()),
            Value::String(_) => "is a text".into(),
            Value::Number(_) => "is a number".into(),
            Value::Bool(_) => "is a boolean".into(),
            Value::Null => "is null".into(),
        })
    }
}

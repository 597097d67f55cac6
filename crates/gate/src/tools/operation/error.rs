//! Why no request can be built from arguments.

use base64::DecodeError;
use serde_json::Value;
use thiserror::Error;

use toolscout_base::printable::excerpt;

/// Characters of a value that a message quotes.
const QUOTED_CHARS: usize = 60;

/// An argument that does not fit, in words for the model.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The document's method is none.
    #[error("{0:?} is not an HTTP method")]
    Method(String),
    /// An argument has no place in the request.
    #[error(
        "{name:?} is no argument of this operation; it takes {known}",
        name = excerpt(name, QUOTED_CHARS),
        known = listed(known)
    )]
    UnknownArgument {
        /// The argument.
        name: String,
        /// Those that have one.
        known: Vec<String>,
    },
    /// A placeholder of the path has no argument.
    #[error("the argument for {{{0}}} in the path is missing")]
    MissingPlaceholder(String),
    /// A segment of the path would be empty or lead elsewhere.
    #[error("`{argument}` is {text:?}, which is not a valid part of a path")]
    Segment {
        /// The argument, or the segment as the document has it.
        argument: String,
        /// What it became.
        text: String,
    },
    /// The path leads to another folder.
    #[error("the path {path:?} leads out of the service's own paths", path = excerpt(.0, 80))]
    LeadsOut(String),
    /// The header is one that only the client may set.
    #[error("`{argument}` would set the header {header}, which is not for arguments to set")]
    ForbiddenHeader {
        /// The argument.
        argument: String,
        /// The header.
        header: String,
    },
    /// The value cannot be sent in a header.
    #[error(
        "`{argument}` is {value:?}, which is not valid in a header",
        value = excerpt(value, QUOTED_CHARS)
    )]
    HeaderValue {
        /// The argument.
        argument: String,
        /// Its value.
        value: String,
    },
    /// A body of a type that is not built from fields.
    #[error(
        "a body of type {0} is not built from fields; give it as text, if the tool's schema has it as one"
    )]
    FieldsForText(String),
    /// A form is not an object.
    #[error(
        "the body is a form: give an object with its fields, not {given}",
        given = excerpt(&.0.to_string(), QUOTED_CHARS)
    )]
    NotAForm(Value),
    /// A file in a form that has no files.
    #[error("`{0}` is a file, which a form of type application/x-www-form-urlencoded cannot hold")]
    FileInForm(String),
    /// A file is given as something else.
    #[error(
        "`{argument}` is a file: give a path, a data: URL, or an object with `path` or `base64`, not {given}",
        given = excerpt(&given.to_string(), QUOTED_CHARS)
    )]
    NotAFile {
        /// The argument.
        argument: String,
        /// What was given.
        given: Value,
    },
    /// A file has a field that files do not have.
    #[error(
        "`{argument}` is a file, whose fields are {known}; it has no {field:?}",
        field = excerpt(field, QUOTED_CHARS)
    )]
    FileField {
        /// The argument.
        argument: String,
        /// The fields that files have.
        known: String,
        /// The unknown field.
        field: String,
    },
    /// A file has both a path and a content, or neither.
    #[error("the file `{0}` needs either `path` or `base64`, and not both")]
    FileSource(String),
    /// A field of a file is no text.
    #[error("`{field}` of the file `{argument}` is no text")]
    FileFieldType {
        /// The argument.
        argument: String,
        /// The field.
        field: String,
    },
    /// A data URL without content.
    #[error("`{0}` is a data: URL without a comma")]
    DataUrl(String),
    /// The content of a file is no base64.
    #[error("the content of the file `{argument}` is no base64: {error}")]
    Base64 {
        /// The argument.
        argument: String,
        /// What is wrong with it.
        error: DecodeError,
    },
}

fn listed(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => excerpt(&names.join(", "), 300),
    }
}

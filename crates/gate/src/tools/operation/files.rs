//! Files in the arguments of an operation: by a path in the folder for files, or by their content.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::tools::ToolFailure;
use crate::tools::builtin::files::Root;
use crate::tools::operation::error::RequestError;
use toolscout_base::printable::excerpt;

/// Most bytes of all files in one request, which are held in memory.
const MAX_FILE_BYTES: usize = 32 << 20;
/// The media type of a file that names none.
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// The fields of a file that is given as an object.
const FIELDS: [&str; 4] = ["path", "base64", "filename", "content_type"];
/// Base64 of both alphabets is read after its letters are those of the first, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A file as an argument names it.
#[derive(Debug, PartialEq, Eq)]
pub struct FileArgument {
    source: Source,
    /// The name that is sent.
    pub filename: String,
    content_type: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// A path in the folder for files.
    Path(String),
    Bytes(Vec<u8>),
}

impl FileArgument {
    /// Reads what was given for the argument of this name.
    ///
    /// # Errors
    /// [`RequestError`] for something that is no file.
    pub fn of(argument: &str, value: &Value) -> Result<Self, RequestError> {
        match value {
            Value::String(text) if text.starts_with("data:") => of_data_url(argument, text),
            Value::String(path) => Ok(FileArgument {
                source: Source::Path(path.clone()),
                filename: last_segment(path),
                content_type: None,
            }),
            Value::Object(fields) => of_object(argument, fields),
            other => Err(RequestError::NotAFile {
                argument: argument.to_owned(),
                given: other.clone(),
            }),
        }
    }

    /// The media type that is sent; `declared` is that of the document.
    pub fn content_type(&self, declared: Option<&str>) -> String {
        match (&self.content_type, declared) {
            (Some(own), _) => own.clone(),
            // A document may declare several types, or `image/*`, of which none can be sent.
            (None, Some(kind)) if !kind.is_empty() && !kind.contains(['*', ',']) => kind.to_owned(),
            _ => UNKNOWN_TYPE.to_owned(),
        }
    }
}

fn of_object(argument: &str, fields: &Map<String, Value>) -> Result<FileArgument, RequestError> {
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(RequestError::FileField {
            argument: argument.to_owned(),
            known: FIELDS.join(", "),
            field: unknown.clone(),
        });
    }
    let text = |field: &str| text_field(argument, fields, field);
    let (path, base64) = (text("path")?, text("base64")?);
    let (source, usual_name) = match (path, base64) {
        (Some(path), None) => {
            let name = last_segment(&path);
            (Source::Path(path), name)
        }
        (None, Some(base64)) => (
            Source::Bytes(decoded(argument, &base64)?),
            "file".to_owned(),
        ),
        _ => return Err(RequestError::FileSource(argument.to_owned())),
    };
    Ok(FileArgument {
        source,
        filename: text("filename")?.unwrap_or(usual_name),
        content_type: text("content_type")?,
    })
}

fn text_field(
    argument: &str,
    fields: &Map<String, Value>,
    field: &str,
) -> Result<Option<String>, RequestError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(RequestError::FileFieldType {
            argument: argument.to_owned(),
            field: field.to_owned(),
        }),
    }
}

/// `data:image/png;base64,iVBORw0…`; without `;base64` the content is percent-encoded text.
fn of_data_url(argument: &str, url: &str) -> Result<FileArgument, RequestError> {
    let Some((kind, content)) = url["data:".len()..].split_once(',') else {
        return Err(RequestError::DataUrl(argument.to_owned()));
    };
    let (kind, bytes) = match kind.strip_suffix(";base64") {
        Some(kind) => (kind, decoded(argument, content)?),
        None => (kind, percent_decode_str(content).collect()),
    };
    Ok(FileArgument {
        source: Source::Bytes(bytes),
        filename: "file".to_owned(),
        content_type: (!kind.is_empty()).then(|| kind.to_owned()),
    })
}

fn decoded(argument: &str, base64: &str) -> Result<Vec<u8>, RequestError> {
    let mut plain = String::with_capacity(base64.len());
    for letter in base64.chars() {
        match letter {
            // It may be broken into lines.
            letter if letter.is_ascii_whitespace() => {}
            '-' => plain.push('+'),
            '_' => plain.push('/'),
            other => plain.push(other),
        }
    }
    let bytes = BASE64.decode(plain);
    bytes.map_err(|error| RequestError::Base64 {
        argument: argument.to_owned(),
        error,
    })
}

fn last_segment(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    if name.is_empty() { "file" } else { name }.to_owned()
}

/// Reads the files of one request.
pub struct FileReader<'a> {
    root: Option<&'a Root>,
    left: usize,
}

impl<'a> FileReader<'a> {
    /// Files by path are in this folder; without one only files by content can be sent.
    pub fn new(root: Option<&'a Root>) -> Self {
        FileReader {
            root,
            left: MAX_FILE_BYTES,
        }
    }

    /// The content of a file.
    ///
    /// # Errors
    /// [`ToolFailure`] for a path that cannot be read, and for too many bytes.
    pub async fn read(&mut self, file: FileArgument) -> Result<Vec<u8>, ToolFailure> {
        let bytes = match file.source {
            Source::Bytes(bytes) => bytes,
            Source::Path(path) => {
                let Some(root) = self.root else {
                    return Err(ToolFailure::new(format!(
                        "the file {:?} cannot be read: no folder for files is set; give its content as `base64`, or let \
                         the owner set `root` in [tools.files] of the profile",
                        excerpt(&path, 60)
                    )));
                };
                root.whole(path, self.left).await?
            }
        };
        let Some(left) = self.left.checked_sub(bytes.len()) else {
            return Err(ToolFailure::new(format!(
                "the files of one request may have {MAX_FILE_BYTES} bytes together; send fewer or smaller ones"
            )));
        };
        self.left = left;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_given_by_path_or_by_content() {
        for (given, source, filename, content_type) in [
            (json!("notes/a.txt"), None, "a.txt", UNKNOWN_TYPE),
            (
                json!({ "path": "a.png", "content_type": "image/png" }),
                None,
                "a.png",
                "image/png",
            ),
            (
                json!({ "base64": "aGk=", "filename": "x.txt" }),
                Some("hi"),
                "x.txt",
                UNKNOWN_TYPE,
            ),
            (
                json!({ "base64": "aG k" }),
                Some("hi"),
                "file",
                UNKNOWN_TYPE,
            ),
            (
                json!("data:text/plain;base64,aGk="),
                Some("hi"),
                "file",
                "text/plain",
            ),
            (json!("data:,h%69"), Some("hi"), "file", UNKNOWN_TYPE),
        ] {
            let file = FileArgument::of("f", &given).unwrap();
            assert_eq!(
                (file.filename.as_str(), file.content_type(None).as_str()),
                (filename, content_type),
                "{given}"
            );
            match (&file.source, source) {
                (Source::Path(_), None) => {}
                (Source::Bytes(bytes), Some(expected)) => assert_eq!(bytes, expected.as_bytes()),
                (other, _) => panic!("{given}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_file_is_refused_with_the_next_step() {
        for (given, expected) in [
            (json!(7), "not 7"),
            (json!({}), "either `path` or `base64`"),
            (
                json!({ "path": "a", "base64": "aGk=" }),
                "either `path` or `base64`",
            ),
            (json!({ "base64": "%" }), "no base64"),
            (
                json!({ "base64": 7 }),
                "`base64` of the file `f` is no text",
            ),
            (json!({ "url": "x" }), "it has no \"url\""),
            (json!("data:text/plain"), "without a comma"),
        ] {
            let message = FileArgument::of("f", &given).unwrap_err().to_string();
            assert!(message.contains(expected), "{given}: {message}");
        }
    }

    #[test]
    fn a_declared_media_type_counts_if_it_is_one() {
        let file = FileArgument::of("f", &json!("a.png")).unwrap();
        for (declared, expected) in [
            (Some("image/png"), "image/png"),
            (Some("image/png, image/jpeg"), UNKNOWN_TYPE),
            (Some("image/*"), UNKNOWN_TYPE),
            (None, UNKNOWN_TYPE),
        ] {
            assert_eq!(file.content_type(declared), expected, "{declared:?}");
        }
    }
}

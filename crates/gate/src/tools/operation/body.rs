//! Builds the body of a request from arguments. Pure; files are read by whoever sends it.

use serde_json::{Map, Value};
use toolscout_index::formats::BodyKind;
use uuid::Uuid;

use crate::tools::operation::error::RequestError;
use crate::tools::operation::files::{FileArgument, FileReader};
use crate::tools::operation::styles::{Pair, Style, joined};
use crate::tools::{Arguments, ToolFailure, text_of};
use toolscout_base::media_type::without_parameters;

/// A body whose files are not read yet.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// Bytes of a media type.
    Bytes(String, Vec<u8>),
    /// One file of a media type.
    File(String, FileArgument),
    /// The parts of `multipart/form-data`.
    Multipart(Vec<Part>),
}

/// One part of a multipart body.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    name: String,
    content_type: Option<String>,
    content: Content,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    File(FileArgument),
}

/// One field of a form with what the document says about it.
pub struct Field<'a> {
    pub name: &'a str,
    pub declared: &'a Map<String, Value>,
    pub is_file: bool,
    pub value: &'a Value,
}

/// The body, if the operation has one and arguments for it were given. `form` has the fields that are
/// parameters of their own, as in Swagger 2.0.
///
/// # Errors
/// [`RequestError`] for an argument that does not fit.
pub fn body(
    call: &Value,
    arguments: &Arguments,
    form: &[Field<'_>],
) -> Result<Option<Body>, RequestError> {
    let Some(declared) = call.get("body") else {
        return Ok(None);
    };
    let content_type = declared
        .get("content_type")
        .and_then(Value::as_str)
        .unwrap_or("application/json");
    let kind = BodyKind::of(content_type);
    if declared.get("form").is_some() {
        return if form.is_empty() {
            Ok(None)
        } else {
            of_fields(kind, form).map(Some)
        };
    }
    let Some(content) = content(declared, arguments) else {
        return Ok(None);
    };
    let body = match kind {
        BodyKind::Json => Body::Bytes(json_type(content_type), content.to_string().into_bytes()),
        BodyKind::Form | BodyKind::Multipart => of_object(kind, declared, &content)?,
        BodyKind::Plain => plain(declared, content_type, content)?,
    };
    Ok(Some(body))
}

/// The body's content; `None` if no argument of it was given and it is not required.
fn content(declared: &Value, arguments: &Arguments) -> Option<Value> {
    if let Some(argument) = declared.get("argument").and_then(Value::as_str) {
        return arguments.get(argument).cloned();
    }
    let names = declared.get("properties").and_then(Value::as_array);
    let mut fields = Map::new();
    for name in names.into_iter().flatten().filter_map(Value::as_str) {
        if let Some(value) = arguments.get(name) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    // A required body is sent even if none of its fields is given.
    let required = declared.get("required") == Some(&Value::Bool(true));
    (required || !fields.is_empty()).then_some(Value::Object(fields))
}

/// The media type that is sent for JSON: a range stands for plain JSON.
fn json_type(content_type: &str) -> String {
    let kind = without_parameters(content_type);
    match kind {
        "" => "application/json".to_owned(),
        kind if kind.contains('*') => "application/json".to_owned(),
        kind => kind.to_owned(),
    }
}

fn plain(declared: &Value, content_type: &str, content: Value) -> Result<Body, RequestError> {
    let kind = without_parameters(content_type);
    if declared.get("file").is_some() {
        let argument = declared.get("argument").and_then(Value::as_str);
        let file = FileArgument::of(argument.unwrap_or("body"), &content)?;
        return Ok(Body::File(file.content_type(Some(kind)), file));
    }
    match content {
        Value::Object(_) | Value::Array(_) => Err(RequestError::FieldsForText(kind.to_owned())),
        scalar => Ok(Body::Bytes(kind.to_owned(), text_of(&scalar).into_bytes())),
    }
}

/// A form from an object of its fields.
fn of_object(kind: BodyKind, declared: &Value, content: &Value) -> Result<Body, RequestError> {
    let Value::Object(values) = content else {
        return Err(RequestError::NotAForm(content.clone()));
    };
    let undeclared = Map::new();
    let encoding = declared.get("encoding").unwrap_or(&Value::Null);
    let files = declared.get("files").and_then(Value::as_array);
    let mut fields = Vec::with_capacity(values.len());
    for (name, value) in values {
        let declared = encoding.get(name).and_then(Value::as_object);
        let mut files = files.into_iter().flatten();
        fields.push(Field {
            name,
            declared: declared.unwrap_or(&undeclared),
            is_file: files.any(|file| file == name),
            value,
        });
    }
    of_fields(kind, &fields)
}

fn of_fields(kind: BodyKind, fields: &[Field<'_>]) -> Result<Body, RequestError> {
    if kind == BodyKind::Multipart {
        let mut parts = Vec::new();
        for field in fields {
            field.add_parts(&mut parts)?;
        }
        return Ok(Body::Multipart(parts));
    }
    let mut pairs = Vec::new();
    for field in fields {
        pairs.extend(field.pairs()?);
    }
    let kind = "application/x-www-form-urlencoded".to_owned();
    Ok(Body::Bytes(kind, joined(&pairs).into_bytes()))
}

impl Field<'_> {
    /// True where the document says in which style the field is written.
    fn has_style(&self) -> bool {
        let keywords = ["style", "explode", "collectionFormat"];
        keywords.iter().any(|key| self.declared.contains_key(*key))
    }

    fn declared_type(&self) -> Option<&str> {
        self.declared.get("contentType")?.as_str()
    }

    /// The field in an urlencoded form.
    fn pairs(&self) -> Result<Vec<Pair>, RequestError> {
        if self.is_file {
            return Err(RequestError::FileInForm(self.name.to_owned()));
        }
        let style = Style::of(self.declared, "form");
        // An object whose style is not declared is JSON: in the usual style its name would be lost.
        let is_json = self.value.is_object() && !self.has_style();
        let style = if is_json { style.as_json() } else { style };
        Ok(style.pairs(self.name, self.value))
    }

    /// Adds the field to a multipart body.
    fn add_parts(&self, parts: &mut Vec<Part>) -> Result<(), RequestError> {
        if self.value.is_null() {
            return Ok(());
        }
        if self.is_file {
            return self.add_files(parts);
        }
        let style = Style::of(self.declared, "form");
        if self.has_style() {
            for pair in style.pairs(self.name, self.value) {
                parts.push(Part {
                    content: Content::Text(pair.value()),
                    name: pair.name,
                    content_type: None,
                });
            }
            return Ok(());
        }
        if style.is_json() {
            parts.push(self.text_part(self.declared_type(), self.value.to_string()));
            return Ok(());
        }
        // A list has a part for each item, all with the name of the field.
        for item in self.items() {
            let usual = item.is_object().then_some("application/json");
            parts.push(self.text_part(self.declared_type().or(usual), text_of(item)));
        }
        Ok(())
    }

    fn text_part(&self, content_type: Option<&str>, text: String) -> Part {
        Part {
            name: self.name.to_owned(),
            content_type: content_type.map(str::to_owned),
            content: Content::Text(text),
        }
    }

    fn items(&self) -> &[Value] {
        match self.value {
            Value::Array(items) => items,
            one => std::slice::from_ref(one),
        }
    }

    fn add_files(&self, parts: &mut Vec<Part>) -> Result<(), RequestError> {
        for item in self.items() {
            let file = FileArgument::of(self.name, item)?;
            parts.push(Part {
                name: self.name.to_owned(),
                content_type: Some(file.content_type(self.declared_type())),
                content: Content::File(file),
            });
        }
        Ok(())
    }
}

impl Body {
    /// The media type and the bytes that are sent.
    ///
    /// # Errors
    /// [`ToolFailure`] for a file that cannot be read.
    pub async fn sent(self, files: &mut FileReader<'_>) -> Result<(String, Vec<u8>), ToolFailure> {
        match self {
            Body::Bytes(content_type, bytes) => Ok((content_type, bytes)),
            Body::File(content_type, file) => Ok((content_type, files.read(file).await?)),
            Body::Multipart(parts) => {
                // Random, so that no content can hold it.
                let boundary = format!("toolscout-{}", Uuid::new_v4().simple());
                let mut bytes = Vec::new();
                for part in parts {
                    part.write(&boundary, &mut bytes, files).await?;
                }
                bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
                Ok((format!("multipart/form-data; boundary={boundary}"), bytes))
            }
        }
    }
}

impl Part {
    async fn write(
        self,
        boundary: &str,
        bytes: &mut Vec<u8>,
        files: &mut FileReader<'_>,
    ) -> Result<(), ToolFailure> {
        let mut head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"",
            header_text(&self.name)
        );
        if let Content::File(file) = &self.content {
            head.push_str(&format!("; filename=\"{}\"", header_text(&file.filename)));
        }
        if let Some(content_type) = &self.content_type {
            head.push_str(&format!("\r\nContent-Type: {}", header_text(content_type)));
        }
        head.push_str("\r\n\r\n");
        bytes.extend_from_slice(head.as_bytes());
        match self.content {
            Content::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Content::File(file) => bytes.extend(files.read(file).await?),
        }
        bytes.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// A text within a header of a part: quotes and line breaks are escaped as browsers do it.
fn header_text(text: &str) -> String {
    text.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

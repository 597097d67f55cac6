//! Tools from typed Rust functions, with the schema derived from the argument type.

use std::future::Future;
use std::marker::PhantomData;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolscout_index::{Annotations, Tool};

use crate::tools::{Arguments, Callable, ToolFailure, UserTool};

/// Makes a tool of an async function.
///
/// ```
/// # use toolscout_gate::tools::{typed, Registry, ToolFailure};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: i64, b: i64 }
///
/// let add = typed("math/add", "Adds two numbers", |args: Add| async move { Ok::<_, ToolFailure>(args.a + args.b) })?;
/// let registry = Registry::new().with(add);
/// # Ok::<(), toolscout_index::Error>(())
/// ```
///
/// # Errors
/// [`toolscout_index::Error::InvalidTool`] for an invalid id.
pub fn typed<A, R, F, Fut>(
    id: &str,
    description: &str,
    function: F,
) -> toolscout_index::Result<TypedTool<A, F>>
where
    A: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    R: Serialize + Send + 'static,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolFailure>> + Send + 'static,
{
    let id = toolscout_index::ToolId::parse(id)?;
    let mut tool = Tool::new(id.server(), id.name())?.with_description(description);
    if let Value::Object(mut schema) = schemars::schema_for!(A).to_value() {
        // The type's name and the draft tell a model nothing, and it would read them each time.
        schema.retain(|key, _| key != "title" && key != "$schema");
        tool.input_schema = schema;
    }
    // Now and not when it is registered: the mistake is in this call.
    tool.validate()?;
    Ok(TypedTool {
        tool,
        function,
        arguments: PhantomData,
    })
}

/// A tool made by [`typed`].
pub struct TypedTool<A, F> {
    tool: Tool,
    function: F,
    /// `fn(A)` makes the tool `Sync` for every argument type.
    arguments: PhantomData<fn(A)>,
}

impl<A, F> TypedTool<A, F> {
    /// Declares what the tool does: the class by which the gate judges its calls follows from it.
    /// A tool that declares nothing is state-changing.
    pub fn annotations(mut self, annotations: Annotations) -> Self {
        self.tool.annotations = annotations;
        self
    }
}

#[async_trait]
impl<A, R, F, Fut> Callable for TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    R: Serialize + Send + 'static,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolFailure>> + Send + 'static,
{
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let arguments =
            serde_path_to_error::deserialize(Value::Object(arguments)).map_err(misfit)?;
        let result = (self.function)(arguments).await?;
        serde_json::to_value(result).map_err(unwritable)
    }
}

impl<A, R, F, Fut> UserTool for TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    R: Serialize + Send + 'static,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolFailure>> + Send + 'static,
{
    fn definition(&self) -> Tool {
        self.tool.clone()
    }
}

fn unwritable(error: serde_json::Error) -> ToolFailure {
    ToolFailure::new(format!("the result cannot be written as JSON: {error}"))
}

/// Names the argument, if it is one.
fn misfit(error: serde_path_to_error::Error<serde_json::Error>) -> ToolFailure {
    let (path, error) = (error.path().to_string(), error.inner());
    let place = match path.as_str() {
        "." => String::new(),
        path => format!("{path}: "),
    };
    ToolFailure::new(format!("the arguments do not fit: {place}{error}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::tools::{Registry, Toolset};

    #[derive(Deserialize, JsonSchema)]
    struct Divide {
        /// The number to divide.
        dividend: f64,
        divisor: f64,
    }

    #[tokio::test]
    async fn a_function_becomes_a_tool_with_its_schema() {
        let divide = typed("math/divide", "Divides", |args: Divide| async move {
            if args.divisor == 0.0 {
                return Err(ToolFailure::new("division by zero"));
            }
            Ok(args.dividend / args.divisor)
        })
        .unwrap();
        let definition = divide.definition();
        assert_eq!(
            definition.input_schema["required"],
            json!(["dividend", "divisor"])
        );
        assert_eq!(
            definition.input_schema["properties"]["dividend"]["description"],
            "The number to divide."
        );

        let registry = Registry::new().with(divide);
        let callable = registry.find(&definition.id).unwrap();
        let call = |arguments: Value| callable.call(arguments.as_object().unwrap().clone());
        assert_eq!(
            call(json!({ "dividend": 6.0, "divisor": 4.0 })).await,
            Ok(json!(1.5))
        );
        assert_eq!(
            call(json!({ "dividend": 1.0, "divisor": 0.0 }))
                .await
                .unwrap_err()
                .message,
            "division by zero"
        );
        assert!(
            call(json!({ "dividend": "six" }))
                .await
                .unwrap_err()
                .message
                .contains("do not fit: dividend: invalid type: string \"six\"")
        );
    }
}

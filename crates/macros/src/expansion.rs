//! The function as it was, and beside it the declaration of a tool that calls it.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, LitStr, Result, ReturnType, Safety, Signature};

use crate::options::{Class, Options};
use crate::parameters::Parameters;
use crate::text;

/// The function and its declaration as a tool.
///
/// # Errors
/// Says what of the options or the function a tool cannot have, and what to write instead.
pub fn expand(options: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(options)?;
    let mut function: ItemFn = syn::parse2(function).map_err(|error| {
        Error::new(
            error.span(),
            format!("`#[toolscout::tool]` makes a tool of a function: {error}"),
        )
    })?;
    refuse_signature(&function.sig)?;
    let parameters = Parameters::take(&mut function.sig)?;
    let declaration = declaration(&options, &function, &parameters)?;
    // A function that is not compiled is no tool.
    let conditions = function
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    Ok(quote! {
        #function
        #(#conditions)*
        const _: () = { #declaration };
    })
}

/// The function without the attributes of its parameters, which the compiler would complain about
/// beside the error that matters.
pub fn without_parameter_attributes(function: TokenStream) -> Option<TokenStream> {
    let mut function: ItemFn = syn::parse2(function).ok()?;
    for input in &mut function.sig.inputs {
        match input {
            FnArg::Typed(typed) => typed.attrs.clear(),
            FnArg::Receiver(receiver) => receiver.attrs.clear(),
        }
    }
    Some(quote!(#function))
}

fn declaration(
    options: &Options,
    function: &ItemFn,
    parameters: &Parameters,
) -> Result<TokenStream> {
    let name = &function.sig.ident;
    let server = options
        .server
        .clone()
        .map_or_else(String::new, |server| server.value());
    let tool_name = options
        .name
        .clone()
        .map_or_else(|| name.unraw().to_string(), |name| name.value());
    let description = description(options, function)?;
    let (read_only, destructive) = hints(options.class);
    let (definition, kind, passed) = (
        parameters.definition(),
        parameters.kind(),
        parameters.passed(),
    );
    let returned = match function.sig.asyncness {
        Some(_) => quote!(#name(#passed).await),
        None => quote!(::toolscout::tools::attribute::blocking(move || #name(#passed)).await),
    };
    let at = match &function.sig.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, output) => output.span(),
    };
    // A result that cannot be written, or an error that cannot be shown, is marked at its type.
    let result = quote_spanned! { at =>
        ::toolscout::tools::attribute::Returned(returned).outcome().into_result()
    };
    Ok(quote! {
        #definition
        ::toolscout::tools::attribute::inventory::submit! {
            ::toolscout::tools::attribute::DeclaredTool::new(
                ::core::concat!(::core::file!(), ":", ::core::line!()),
                || ::toolscout::tools::attribute::declared(
                    #server,
                    #tool_name,
                    #description,
                    [#read_only, #destructive],
                    // Without parameters there is nothing to take from it.
                    #[allow(unused_variables)]
                    |arguments: #kind| async move {
                        #[allow(unused_imports)]
                        use ::toolscout::tools::attribute::AnyOutcome as _;
                        let returned = #returned;
                        #result
                    },
                ),
            )
        }
    })
}

fn refuse_signature(signature: &Signature) -> Result<()> {
    let refuse = |at: &dyn Spanned, message: &str| Err(Error::new(at.span(), message));
    if let Safety::Unsafe(unsafety) = &signature.safety {
        return refuse(
            unsafety,
            "a model calls the tool with any arguments, so the function must be safe",
        );
    }
    if signature.generics.lt_token.is_some() {
        return refuse(
            &signature.generics,
            "a tool has one schema, so its function cannot be generic; name the types",
        );
    }
    Ok(())
}

/// The description: as an option, or of the doc comment.
fn description(options: &Options, function: &ItemFn) -> Result<String> {
    let description = options.description.as_ref().map(LitStr::value);
    description.or_else(|| text::of_doc_comments(&function.attrs)).ok_or_else(|| {
        let message = "a tool is found by its description; write a doc comment above the function, or `description = \"…\"`";
        Error::new(function.sig.ident.span(), message)
    })
}

/// The MCP hints of a class: read-only and destructive.
fn hints(class: Option<Class>) -> (TokenStream, TokenStream) {
    let (no, yes) = (
        quote!(::core::option::Option::Some(false)),
        quote!(::core::option::Option::Some(true)),
    );
    match class {
        None => (
            quote!(::core::option::Option::None),
            quote!(::core::option::Option::None),
        ),
        Some(Class::ReadOnly) => (yes, no),
        Some(Class::StateChanging) => (no.clone(), no),
        Some(Class::Destructive) => (no, yes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &str, function: &str) -> String {
        let refused = expand(options.parse().unwrap(), function.parse().unwrap());
        refused.expect_err(function).to_string()
    }

    #[test]
    fn what_cannot_be_a_tool_is_refused_with_what_to_write_instead() {
        for (options, function, expected) in [
            (
                "",
                "async fn f() {}",
                "write a doc comment above the function",
            ),
            (
                "class = \"harmless\"",
                "/// D\nasync fn f() {}",
                "there is no class \"harmless\"; there are \"read_only\"",
            ),
            (
                "kind = \"x\"",
                "/// D\nasync fn f() {}",
                "there is no option `kind`; there are `name`",
            ),
            (
                "name",
                "/// D\nasync fn f() {}",
                "`name` needs a text, as in `name = \"…\"`",
            ),
            ("name = 3", "/// D\nasync fn f() {}", "`name` needs a text"),
            (
                "name = \"a\", name = \"b\"",
                "/// D\nasync fn f() {}",
                "`name` is given twice",
            ),
            (
                "",
                "/// D\nasync fn f(&self) {}",
                "a method cannot be a tool",
            ),
            (
                "",
                "/// D\nasync fn f(city: &str) {}",
                "`city` cannot be borrowed or generic; take `String`",
            ),
            ("", "/// D\nasync fn f(ids: &[u32]) {}", "take a `Vec`"),
            (
                "",
                "/// D\nasync fn f(city: impl Into<String>) {}",
                "take a type that serde can read",
            ),
            (
                "",
                "/// D\nasync fn f((a, b): (u32, u32)) {}",
                "give the parameter a name",
            ),
            ("", "/// D\nasync fn f<T>(value: T) {}", "cannot be generic"),
            ("", "/// D\nunsafe fn f() {}", "must be safe"),
            ("", "/// D\nstruct S;", "makes a tool of a function"),
            (
                "",
                "/// D\nasync fn f(/// twice\n Parameters(o): Parameters<Order>) {}",
                "write the doc comment there",
            ),
        ] {
            let message = refused(options, function);
            assert!(message.contains(expected), "{function}: {message}");
        }
    }

    #[test]
    fn a_refused_function_stays_without_what_the_compiler_would_complain_about() {
        let function = "async fn f(/** A city. */ city: &str) {}".parse().unwrap();
        let kept = without_parameter_attributes(function).unwrap().to_string();
        assert_eq!(kept, "async fn f (city : & str) { }");
    }

    #[test]
    fn what_describes_a_property_moves_to_it_and_the_rest_stays() {
        let function = "/// D\nfn f(/** A city. */ #[allow(unused)] #[serde(alias = \"town\")] city: String) {}";
        let expanded = expand(TokenStream::new(), function.parse().unwrap())
            .unwrap()
            .to_string();
        let (kept, declared) = expanded.split_once("const _").unwrap();
        assert!(
            kept.contains("fn f (# [allow (unused)] city : String)"),
            "{kept}"
        );
        let field = r#"# [doc = " A city. "] # [serde (alias = "town")] city : String"#;
        assert!(declared.contains(field), "{declared}");
    }

    #[test]
    fn a_function_that_is_not_compiled_is_no_tool() {
        let function = "/// D\n#[cfg(windows)]\nfn f() {}".parse().unwrap();
        let expanded = expand(TokenStream::new(), function).unwrap().to_string();
        assert_eq!(expanded.matches("cfg (windows)").count(), 2, "{expanded}");
    }
}

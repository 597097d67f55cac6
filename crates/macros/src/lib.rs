//! The attribute `#[toolscout::tool]`, which makes a tool of a function. The crate
//! `toolscout` exports it and documents it.

mod options;
mod parameters;
mod text;

mod expansion;

use proc_macro::TokenStream;

/// Makes a tool of a function, which `Registry::collect` finds.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    match expansion::expand(options.into(), function.clone().into()) {
        Ok(expanded) => expanded.into(),
        Err(error) => {
            // With the function as it was written, so that its callers give no errors of their own.
            let mut kept = TokenStream::from(error.into_compile_error());
            kept.extend(
                expansion::without_parameter_attributes(function.into()).map(TokenStream::from),
            );
            kept
        }
    }
}

//! What stands in the parentheses of the attribute.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Result, Token};

/// The options of a tool, each at most once.
#[derive(Default)]
pub struct Options {
    pub server: Option<LitStr>,
    pub name: Option<LitStr>,
    pub description: Option<LitStr>,
    pub class: Option<Class>,
}

/// How much harm a call may do, in the words of the gate's settings.
#[derive(Clone, Copy)]
pub enum Class {
    ReadOnly,
    StateChanging,
    Destructive,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Options::default();
        for given in Punctuated::<Given, Token![,]>::parse_terminated(input)? {
            options.set(given)?;
        }
        Ok(options)
    }
}

impl Options {
    fn set(&mut self, given: Given) -> Result<()> {
        let Given { name, value } = given;
        let twice = match name.to_string().as_str() {
            "server" => self.server.replace(value).is_some(),
            "name" => self.name.replace(value).is_some(),
            "description" => self.description.replace(value).is_some(),
            "class" => self.class.replace(Class::parse(&value)?).is_some(),
            other => {
                let message = format!(
                    "there is no option `{other}`; there are `name`, `server`, `description` and `class`"
                );
                return Err(Error::new(name.span(), message));
            }
        };
        if twice {
            return Err(Error::new(
                name.span(),
                format!("`{name}` is given twice; leave one out"),
            ));
        }
        Ok(())
    }
}

impl Class {
    fn parse(value: &LitStr) -> Result<Self> {
        match value.value().as_str() {
            "read_only" => Ok(Class::ReadOnly),
            "state_changing" => Ok(Class::StateChanging),
            "destructive" => Ok(Class::Destructive),
            other => {
                let message = format!(
                    "there is no class {other:?}; there are \"read_only\", \"state_changing\" and \"destructive\""
                );
                Err(Error::new(value.span(), message))
            }
        }
    }
}

/// One option, `name = "value"`.
struct Given {
    name: Ident,
    value: LitStr,
}

impl Parse for Given {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        let wanted = |error: Error| {
            let message = format!("`{name}` needs a text, as in `{name} = \"…\"`");
            Error::new(error.span(), message)
        };
        input.parse::<Token![=]>().map_err(wanted)?;
        let value = input.parse().map_err(wanted)?;
        Ok(Given { name, value })
    }
}

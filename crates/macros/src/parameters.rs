//! The parameters of a tool's function, and the type that its arguments are read into.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, Result,
    Signature, Type,
};

/// The parameters of a function.
pub enum Parameters {
    /// Each is a property of the schema.
    Each(Vec<Parameter>),
    /// One of type `Parameters<T>`: `T` has the properties.
    Whole(Box<Type>),
}

/// A parameter that is a property of the schema.
pub struct Parameter {
    name: Ident,
    kind: Type,
    /// Its doc comment, and what serde and schemars are told about it.
    attributes: Vec<Attribute>,
}

impl Parameters {
    /// Reads the parameters of a function, and takes away from it what describes properties, since
    /// the compiler accepts that on fields only.
    ///
    /// # Errors
    /// Names the parameter that cannot be read from JSON, and what to write in its place.
    pub fn take(signature: &mut Signature) -> Result<Self> {
        if let [FnArg::Typed(only)] = &mut Vec::from_iter(&mut signature.inputs)[..]
            && let Some(whole) = whole(&only.ty)
        {
            let whole = Parameters::Whole(Box::new(whole.clone()));
            refuse_attributes(&only.attrs)?;
            return Ok(whole);
        }
        let mut each = Vec::new();
        for input in &mut signature.inputs {
            each.push(parameter(input)?);
        }
        Ok(Parameters::Each(each))
    }

    /// The definition of the type that arguments are read into, if there is none yet.
    pub fn definition(&self) -> TokenStream {
        let Parameters::Each(parameters) = self else {
            return TokenStream::new();
        };
        let fields = parameters.iter().map(
            |Parameter {
                 name,
                 kind,
                 attributes,
             }| {
                quote! { #(#attributes)* #name: #kind, }
            },
        );
        let arguments = arguments_type();
        quote! {
            #[derive(
                ::toolscout::tools::attribute::serde::Deserialize,
                ::toolscout::tools::attribute::schemars::JsonSchema,
            )]
            #[serde(crate = "::toolscout::tools::attribute::serde", deny_unknown_fields)]
            #[schemars(crate = "::toolscout::tools::attribute::schemars")]
            struct #arguments { #(#fields)* }
        }
    }

    /// The type that arguments are read into.
    pub fn kind(&self) -> TokenStream {
        match self {
            Parameters::Each(_) => {
                let arguments = arguments_type();
                quote!(#arguments)
            }
            Parameters::Whole(kind) => quote!(#kind),
        }
    }

    /// What is passed to the function, of `arguments`.
    pub fn passed(&self) -> TokenStream {
        match self {
            Parameters::Each(parameters) => {
                let names = parameters.iter().map(|parameter| &parameter.name);
                quote!(#(arguments.#names),*)
            }
            Parameters::Whole(_) => quote!(::toolscout::tools::Parameters(arguments)),
        }
    }
}

/// A name that no type of a parameter has.
fn arguments_type() -> Ident {
    format_ident!("__ToolscoutArguments")
}

/// `T`, if a type is `Parameters<T>`.
fn whole(kind: &Type) -> Option<&Type> {
    let Type::Path(path) = kind else {
        return None;
    };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(generic) = &last.arguments else {
        return None;
    };
    match generic.args.first()? {
        GenericArgument::Type(inner) if last.ident == "Parameters" => Some(inner),
        _ => None,
    }
}

fn parameter(input: &mut FnArg) -> Result<Parameter> {
    let PatType { attrs, pat, ty, .. } = match input {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            let message = "a method cannot be a tool; make it a function, or pass a closure that holds the state to `toolscout::tools::typed`";
            return Err(Error::new(receiver.span(), message));
        }
    };
    let name = match &**pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
            pattern.ident.clone()
        }
        other => {
            let message = "give the parameter a name, which becomes the name of the property; a single parameter of type `toolscout::tools::Parameters<T>` may be taken apart";
            return Err(Error::new(other.span(), message));
        }
    };
    refuse_borrowed(&name, ty)?;
    let (attributes, kept) = std::mem::take(attrs).into_iter().partition(is_of_field);
    *attrs = kept;
    Ok(Parameter {
        name,
        kind: (**ty).clone(),
        attributes,
    })
}

/// True for an attribute that describes a property. Others, such as `allow`, are for the function.
fn is_of_field(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}

fn refuse_borrowed(name: &Ident, kind: &Type) -> Result<()> {
    let instead = match kind {
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => "`String`".to_owned(),
            Type::Slice(_) => "a `Vec`".to_owned(),
            _ => "an owned type".to_owned(),
        },
        Type::ImplTrait(_) => "a type that serde can read".to_owned(),
        _ => return Ok(()),
    };
    let message = format!(
        "arguments are read from JSON, so `{name}` cannot be borrowed or generic; take {instead}"
    );
    Err(Error::new(kind.span(), message))
}

fn refuse_attributes(attributes: &[Attribute]) -> Result<()> {
    match attributes.first() {
        None => Ok(()),
        Some(attribute) => {
            let message = "the fields of the type describe themselves; write the doc comment there";
            Err(Error::new(attribute.span(), message))
        }
    }
}

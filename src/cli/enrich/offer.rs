//! Says after `add` and `sync` what texts of the new tools would take, where a model is configured.

use toolscout_index::{Catalog, Searcher};

use crate::cli::context::Context;
use crate::cli::output::print_stderr;
use crate::config::EnrichMode;
use crate::enrich::wanted::Wanted;
use crate::enrich::{self, DEFAULT_BATCH, Tokens};
use crate::printable::{self, counted};

/// The variables that name a model.
const VARIABLES: [&str; 2] = ["TOOLSCOUT_MODEL", "TOOLSCOUT_LLM"];
/// Tools whose tokens are counted; those of further ones are taken to be like these.
const COUNTED: usize = 200;

/// Offers `toolscout enrich`, unless somebody has used it for this catalog already.
pub fn offer(context: &Context, catalog: &Catalog) {
    if context.settings.enrich.mode() == EnrichMode::Off {
        return;
    }
    if let Some(model) = VARIABLES.iter().find_map(|name| std::env::var(name).ok())
        && !model.is_empty()
        && let Some(offer) = words(&catalog.searcher(), &model)
    {
        print_stderr(offer);
    }
}

fn words(searcher: &Searcher, model: &str) -> Option<String> {
    if enrich::ids_with_texts(searcher, &[]).next().is_some() {
        return None;
    }
    let tools = searcher.ids_after(None).count();
    if tools == 0 {
        return None;
    }
    let Tokens { input, output } = tokens(searcher, tools);
    Some(format!(
        "`toolscout enrich` lets {} write what people say when they need these {}: about {input} tokens sent and \
         {output} received, once",
        printable::line(model),
        counted(tools, "tool"),
    ))
}

/// About how many tokens texts of all tools take.
fn tokens(searcher: &Searcher, tools: usize) -> Tokens {
    // Spread over the catalog: tools of one server are alike, and stand together.
    let every = tools.div_ceil(COUNTED).max(1);
    let ids = searcher.ids_after(None).step_by(every);
    let sample: Vec<_> = ids.filter_map(|id| searcher.tool(id)).collect();
    let of_sample = enrich::estimate(&enrich::batches(&sample, DEFAULT_BATCH, &Wanted::default()));
    let scale = |tokens: usize| tokens * tools / sample.len().max(1);
    Tokens {
        input: scale(of_sample.input),
        output: scale(of_sample.output),
    }
}

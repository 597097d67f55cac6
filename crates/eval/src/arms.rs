//! The arms of an evaluation: a search mode, for the hybrid mode a fusion, and the enabled parts.

use toolscout_index::query::Filter;
use toolscout_index::{Fusion, Mode, Parts, Query, SearchOptions};

use super::error::{EvalError, Result};

/// A search configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// `lexical`, `dense`, `hybrid`, `hybrid-rrf`, `formula`.
    pub name: String,
    /// The search mode.
    pub mode: Mode,
    /// The fusion of the hybrid mode.
    pub fusion: Fusion,
    /// The weight of the dense legs; `None` for the setting of the catalog.
    pub dense_weight: Option<f32>,
    /// The enabled parts.
    pub parts: Parts,
    /// What searches are limited to.
    pub limits: Limits,
    /// Whether mode, fusion, weight and parts are those of the catalog, and not these.
    pub is_as_set: bool,
}

/// What the searches of an arm are limited to, and what they take where the arm says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Only tools that pass it are hits.
    pub filter: Filter,
    /// The time of a search.
    pub budget_ms: Option<f64>,
    /// Thresholds, and the settings of an arm that is as set.
    pub options: SearchOptions,
}

/// The name of the arm that searches as its catalog is set.
pub const IN_USE: &str = "in use";
/// The name of the hybrid arm without the ranker.
const FORMULA: &str = "formula";

impl Arm {
    /// The arms with these names; `hybrid` gives one arm per fusion.
    ///
    /// # Errors
    /// [`EvalError::Option`] for an unknown or repeated name, or a weight outside 0 to 1.
    pub fn named(
        names: &[String],
        fusions: &[Fusion],
        dense_weight: Option<f32>,
    ) -> Result<Vec<Arm>> {
        if let Some(weight) = dense_weight
            && !(0.0..=1.0).contains(&weight)
        {
            return Err(EvalError::option(
                "--dense-weight",
                weight.to_string(),
                "it must be from 0 to 1",
            ));
        }
        let mut arms: Vec<Arm> = Vec::new();
        for name in names {
            for arm in arms_of(name, fusions)? {
                if arms.iter().any(|other| other.name == arm.name) {
                    return Err(EvalError::option("--arms", name, "it is named twice"));
                }
                arms.push(Arm {
                    dense_weight,
                    ..arm
                });
            }
        }
        Ok(arms)
    }

    /// The arm that searches as a catalog is set.
    pub fn as_set(name: &str) -> Arm {
        // Mode and fusion are not used: those of the catalog are.
        Arm {
            is_as_set: true,
            ..of_mode(Mode::Auto, Fusion::Convex, name)
        }
    }

    /// The arm within these limits.
    pub fn within(self, limits: &Limits) -> Arm {
        Arm {
            limits: limits.clone(),
            ..self
        }
    }

    /// The mode that it searches in.
    pub fn effective_mode(&self) -> Mode {
        if self.is_as_set {
            self.limits.options.mode.unwrap_or(self.mode)
        } else {
            self.mode
        }
    }

    /// The arm without the ranker.
    pub fn without_ranker(self) -> Arm {
        Arm {
            parts: Parts {
                ranker: false,
                ..self.parts
            },
            ..self
        }
    }

    /// The query of the arm.
    pub fn query(&self, text: &str) -> Query {
        let query = Query::new(text)
            .options(self.limits.options)
            .filter(self.limits.filter.clone());
        let query = match self.limits.budget_ms {
            Some(budget_ms) => query.budget_ms(budget_ms),
            None => query,
        };
        // What a query does not say is taken from the settings of the catalog.
        if self.is_as_set {
            return query;
        }
        let query = query.mode(self.mode).fusion(self.fusion).parts(self.parts);
        match self.dense_weight {
            Some(weight) => query.dense_weight(weight),
            None => query,
        }
    }

    /// True when a ranker takes part, if there is one for the embedders.
    pub fn is_ranked(&self) -> bool {
        let is_hybrid = matches!(self.effective_mode(), Mode::Hybrid | Mode::Auto);
        is_hybrid && self.fusion == Fusion::Convex && self.parts.ranker
    }

    /// True when the arm cannot answer without vectors.
    pub fn needs_vectors(&self) -> bool {
        matches!(self.effective_mode(), Mode::Dense | Mode::Hybrid)
    }
}

pub(super) fn of_mode(mode: Mode, fusion: Fusion, name: &str) -> Arm {
    Arm {
        name: name.into(),
        mode,
        fusion,
        dense_weight: None,
        parts: Parts::ALL,
        limits: Limits::default(),
        is_as_set: false,
    }
}

/// The arms of a name, with the weight of the catalog.
fn arms_of(name: &str, fusions: &[Fusion]) -> Result<Vec<Arm>> {
    if name == FORMULA {
        let formula = of_mode(Mode::Hybrid, Fusion::Convex, FORMULA);
        return Ok(vec![formula.without_ranker()]);
    }
    let Ok(mode) = name.parse::<Mode>() else {
        let reason = "use lexical, dense, hybrid, formula or auto, separated by commas";
        return Err(EvalError::option("--arms", name, reason));
    };
    // Only the hybrid mode has an arm for each fusion.
    if mode != Mode::Hybrid {
        return Ok(vec![of_mode(mode, Fusion::Convex, mode.name())]);
    }
    let mut arms = Vec::with_capacity(fusions.len());
    for &fusion in fusions {
        let name = match fusion {
            Fusion::Convex => "hybrid",
            Fusion::Rrf => "hybrid-rrf",
        };
        arms.push(of_mode(Mode::Hybrid, fusion, name));
    }
    Ok(arms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arms: &str, fusions: &[Fusion]) -> Result<Vec<String>> {
        let arms: Vec<String> = arms.split(',').map(str::to_owned).collect();
        Ok(Arm::named(&arms, fusions, None)?
            .into_iter()
            .map(|arm| arm.name)
            .collect())
    }

    #[test]
    fn the_hybrid_mode_is_one_arm_per_fusion() {
        let both = [Fusion::Convex, Fusion::Rrf];
        assert_eq!(
            names("lexical,hybrid", &both).unwrap(),
            ["lexical", "hybrid", "hybrid-rrf"]
        );
        assert_eq!(
            names("hybrid,dense", &[Fusion::Rrf]).unwrap(),
            ["hybrid-rrf", "dense"]
        );
        assert_eq!(
            names("formula,hybrid", &both).unwrap(),
            ["formula", "hybrid", "hybrid-rrf"]
        );
    }

    #[test]
    fn unknown_and_repeated_arms_and_bad_weights_are_named() {
        let one = [Fusion::Convex];
        assert!(
            names("sparse", &one)
                .unwrap_err()
                .to_string()
                .contains("--arms \"sparse\"")
        );
        assert!(
            names("dense,dense", &one)
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
        assert!(
            Arm::named(&["hybrid".into()], &one, Some(1.5))
                .unwrap_err()
                .to_string()
                .contains("1.5")
        );
    }
}

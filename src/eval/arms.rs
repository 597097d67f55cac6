//! The arms of an evaluation: a search mode, for the hybrid mode a fusion, and the enabled parts.

use toolscout_index::{Fusion, Mode, Parts, Query};

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
}

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
        if let Some(weight) = dense_weight.filter(|weight| !(0.0..=1.0).contains(weight)) {
            return Err(EvalError::option(
                "--dense-weight",
                weight.to_string(),
                "it must be from 0 to 1",
            ));
        }
        let mut arms: Vec<Arm> = Vec::new();
        for name in names {
            for arm in arms_of(name, fusions, dense_weight)? {
                if arms.iter().any(|other| other.name == arm.name) {
                    return Err(EvalError::option("--arms", name, "it is named twice"));
                }
                arms.push(arm);
            }
        }
        Ok(arms)
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
            .mode(self.mode)
            .fusion(self.fusion)
            .parts(self.parts);
        match self.dense_weight {
            Some(weight) => query.dense_weight(weight),
            None => query,
        }
    }

    /// True when a ranker takes part, if there is one for the embedders.
    pub fn is_ranked(&self) -> bool {
        let is_hybrid = matches!(self.mode, Mode::Hybrid | Mode::Auto);
        is_hybrid && self.fusion == Fusion::Convex && self.parts.ranker
    }

    /// True when the arm cannot answer without vectors.
    pub fn needs_vectors(&self) -> bool {
        matches!(self.mode, Mode::Dense | Mode::Hybrid)
    }
}

fn arms_of(name: &str, fusions: &[Fusion], dense_weight: Option<f32>) -> Result<Vec<Arm>> {
    let of_mode = |mode, fusion, name: &str| Arm {
        name: name.into(),
        mode,
        fusion,
        dense_weight,
        parts: Parts::ALL,
    };
    if name == FORMULA {
        return Ok(vec![
            of_mode(Mode::Hybrid, Fusion::Convex, FORMULA).without_ranker(),
        ]);
    }
    let mode: Mode = name.parse().map_err(|_| {
        EvalError::option(
            "--arms",
            name,
            "use lexical, dense, hybrid, formula or auto, separated by commas",
        )
    })?;
    let plain = |fusion, name: &str| of_mode(mode, fusion, name);
    if mode != Mode::Hybrid {
        return Ok(vec![plain(Fusion::Convex, mode.name())]);
    }
    let named = |fusion: &Fusion| match fusion {
        Fusion::Convex => plain(Fusion::Convex, "hybrid"),
        Fusion::Rrf => plain(Fusion::Rrf, "hybrid-rrf"),
    };
    Ok(fusions.iter().map(named).collect())
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

//! The ways of searching that are compared: a mode, for the hybrid a fusion, and the parts that take part.

use toolscout_index::{Fusion, Mode, Parts};

use super::error::{EvalError, Result};

/// One way of searching.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// `lexical`, `dense`, `hybrid`, `hybrid-rrf`.
    pub name: String,
    /// Which legs answer.
    pub mode: Mode,
    /// How the hybrid joins them.
    pub fusion: Fusion,
    /// The dense legs' share instead of the catalog's setting.
    pub dense_weight: Option<f32>,
    /// What takes part.
    pub parts: Parts,
}

impl Arm {
    /// The arms of these names; `hybrid` stands for one arm a fusion.
    ///
    /// # Errors
    /// [`EvalError::Option`] for an unknown or repeated name, or a weight outside 0 to 1.
    pub fn named(names: &[String], fusions: &[Fusion], dense_weight: Option<f32>) -> Result<Vec<Arm>> {
        if let Some(weight) = dense_weight.filter(|weight| !(0.0..=1.0).contains(weight)) {
            return Err(EvalError::option("--dense-weight", weight.to_string(), "it must be from 0 to 1"));
        }
        let mut arms: Vec<Arm> = Vec::new();
        for name in names {
            let mode = name.parse().map_err(|_| {
                EvalError::option("--arms", name, "there are lexical, dense, hybrid and auto, separated by commas")
            })?;
            for arm in arms_of(mode, fusions, dense_weight) {
                if arms.iter().any(|other| other.name == arm.name) {
                    return Err(EvalError::option("--arms", name, "it is named twice"));
                }
                arms.push(arm);
            }
        }
        Ok(arms)
    }

    /// True when the arm cannot answer without vectors.
    pub fn needs_vectors(&self) -> bool {
        matches!(self.mode, Mode::Dense | Mode::Hybrid)
    }
}

fn arms_of(mode: Mode, fusions: &[Fusion], dense_weight: Option<f32>) -> Vec<Arm> {
    let plain = |fusion, name: &str| Arm { name: name.into(), mode, fusion, dense_weight, parts: Parts::ALL };
    if mode != Mode::Hybrid {
        return vec![plain(Fusion::Convex, mode.name())];
    }
    let named = |fusion: &Fusion| match fusion {
        Fusion::Convex => plain(Fusion::Convex, "hybrid"),
        Fusion::Rrf => plain(Fusion::Rrf, "hybrid-rrf"),
    };
    fusions.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arms: &str, fusions: &[Fusion]) -> Result<Vec<String>> {
        let arms: Vec<String> = arms.split(',').map(str::to_owned).collect();
        Ok(Arm::named(&arms, fusions, None)?.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn the_hybrid_is_one_arm_a_fusion() {
        let both = [Fusion::Convex, Fusion::Rrf];
        assert_eq!(names("lexical,hybrid", &both).unwrap(), ["lexical", "hybrid", "hybrid-rrf"]);
        assert_eq!(names("hybrid,dense", &[Fusion::Rrf]).unwrap(), ["hybrid-rrf", "dense"]);
    }

    #[test]
    fn unknown_and_repeated_arms_and_bad_weights_are_named() {
        let one = [Fusion::Convex];
        assert!(names("sparse", &one).unwrap_err().to_string().contains("--arms \"sparse\""));
        assert!(names("dense,dense", &one).unwrap_err().to_string().contains("twice"));
        assert!(Arm::named(&["hybrid".into()], &one, Some(1.5)).unwrap_err().to_string().contains("1.5"));
    }
}

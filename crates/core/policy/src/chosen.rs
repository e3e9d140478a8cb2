//! A report of the choice that a policy has made among others.

use crate::Spec;

/// The choice of a policy among candidates.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Times that another candidate took charge.
    pub changes: u64,
    /// All candidates.
    pub candidates: Vec<Candidate>,
}

impl Chosen {
    /// The policy that decides at present.
    pub fn in_charge(&self) -> Option<&Spec> {
        self.candidates.iter().find(|candidate| candidate.in_charge).map(|candidate| &candidate.policy)
    }
}

/// A policy to choose, and what its shadow did recently.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The policy.
    pub policy: Spec,
    /// Whether it decides at present.
    pub in_charge: bool,
    /// Sampled references; older ones count half, a quarter and so on. 0 until the cache was full.
    pub references: u64,
    /// Of these, hits.
    pub hits: u64,
}

//! An operation of a host on a policy whose type only the registry knows.

use crate::Policy;

/// An operation on a policy whose type only the registry knows; it is compiled for each policy.
pub trait Visit {
    /// The result.
    type Out;
    /// Whether a small policy is preferred to a fast one.
    const SMALL: bool = false;

    /// Runs it.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out;
}

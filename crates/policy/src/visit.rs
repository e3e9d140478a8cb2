//! What a host does with a policy whose type only the registry knows.

use crate::Policy;

/// What to do with a policy whose type is known only to the registry, so that it is compiled for each policy.
pub trait Visit {
    /// What comes of it.
    type Out;
    /// Whether the policy should rather be small than fast.
    const SMALL: bool = false;

    /// Does it.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out;
}

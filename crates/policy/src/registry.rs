//! Every policy by name. A new policy is one file and one line here.

use crate::Policy;
use crate::spec::{Configured, Info, Setup, Spec, SpecError};

/// What to do with a policy whose type is known only here, so that it is compiled for each policy.
pub trait Visit {
    /// What comes of it.
    type Out;
    /// Whether the policy should rather be small than fast.
    const SMALL: bool = false;

    /// Does it.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out;
}

macro_rules! policies {
    ($($module:ident::$policy:ident),* $(,)?) => {
        static REGISTRY: &[Info] = &[$(<crate::$module::$policy as Configured>::INFO),*];

        /// Makes the policy that `spec` asks for and gives it to `visitor`.
        pub fn visit<V: Visit>(spec: &Spec, setup: &Setup, visitor: V) -> Result<V::Out, SpecError> {
            let info = find(spec.name())?;
            let params = spec.params(info)?;
            match info.name {
                $(name if name == <crate::$module::$policy as Configured>::INFO.name => {
                    <crate::$module::$policy as Configured>::visit(setup, &params, visitor)
                })*
                _ => unreachable!("find() knows registered names only"),
            }
        }
    };
}

policies! {
    opt::Opt,
    lru::Lru,
    fifo::Fifo,
    lfu::Lfu,
    clock::Clock,
    dulo::Dulo,
    gclock::GClock,
    lru_2::Lru2,
    two_q::TwoQ,
    lrfu::Lrfu,
    fbr::Fbr,
    eelru::Eelru,
    mq::Mq,
    arc::Arc,
    car::Car,
    lirs::Lirs,
    clock_pro::ClockPro,
    s3_fifo::S3Fifo,
    sieve::Sieve,
    w_tinylfu::WTinyLfu,
}

/// All policies, in the order of `nigh policies`.
pub fn registry() -> &'static [Info] {
    REGISTRY
}

/// The description of the policy called `name`.
pub(crate) fn find(name: &str) -> Result<&'static Info, SpecError> {
    REGISTRY.iter().find(|info| info.name == name).ok_or_else(|| SpecError::UnknownPolicy { name: name.to_owned() })
}

/// Makes the policy that `spec` asks for, for a host that chooses it at run time.
pub fn build(spec: &Spec, setup: &Setup) -> Result<Box<dyn Policy + Send>, SpecError> {
    struct Boxed;
    impl Visit for Boxed {
        type Out = Box<dyn Policy + Send>;
        const SMALL: bool = true;

        fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out {
            Box::new(policy)
        }
    }
    visit(spec, setup, Boxed)
}

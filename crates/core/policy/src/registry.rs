//! Every policy by name. CONTRIBUTING.md lists the files of a new one.

use std::str::FromStr;

use crate::{Policy, Room};
use nigh_text::nearest;

use crate::spec::{Configured, Info, Param, Params, Setup, Spec, SpecError};
use crate::values::Values;
use crate::visit::Visit;

macro_rules! policies {
    ($($module:ident::$policy:ident),* $(,)?) => {
        static REGISTRY: &[Info] = &[$(<crate::$module::$policy as Configured>::INFO),*];

        /// Creates the policy that `spec` describes and passes it to `visitor`.
        pub fn visit<V: Visit>(spec: &Spec, setup: &Setup, visitor: V) -> Result<V::Out, SpecError> {
            let info = find(spec.name())?;
            let params = spec.params(info)?;
            match info.name {
                $(name if name == <crate::$module::$policy as Configured>::INFO.name => {
                    <crate::$module::$policy as Configured>::visit(setup, &params, visitor)
                })*
                name => Err(SpecError::NeedsLevels { policy: name }),
            }
        }

        /// The most ghosts that the policy `spec` remembers with a cache of `capacity` blocks: 0 if it remembers none,
        /// `u32::MAX` if their number is not limited. Room for more does not change its behaviour. For a policy that decides for
        /// all levels, `capacity` is the number of blocks in all of them, and ghosts are what no level has.
        pub fn ghosts(spec: &Spec, capacity: u32) -> Result<u32, SpecError> {
            let info = find(spec.name())?;
            let params = spec.params(info)?;
            match info.name {
                $(name if name == <crate::$module::$policy as Configured>::INFO.name => {
                    <crate::$module::$policy as Configured>::ghosts(&params, capacity)
                })*
                _ => crate::ulc::ghosts(&params, capacity),
            }
        }
    };
}

policies! {
    opt::Opt,
    lru::Lru,
    fifo::Fifo,
    random::Random,
    lfu::Lfu,
    lfu_da::LfuDa,
    clock::Clock,
    dulo::Dulo,
    gclock::GClock,
    lru_k::Lru2,
    lru_k::Lru3,
    slru::Slru,
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
    lecar::Lecar,
    cacheus::Cacheus,
    hyperbolic::Hyperbolic,
    linux::Linux,
    aoio::Aoio,
    ubm::Ubm,
    pcc::Pcc,
    amp::Amp,
    auto::Auto,
}

const AUTO: &str = <crate::auto::Auto as Configured>::INFO.name;

static UNIFIED: &[Info] = &[crate::ulc::INFO];

/// Other names of policies in the literature.
const OTHER_NAMES: &[(&str, &str)] = &[("min", "opt"), ("belady", "opt")];

/// Policies for one cache, in the order of `nigh policies`.
pub fn registry() -> &'static [Info] {
    REGISTRY
}

/// Schemes that decide for all levels of a cache at once, with a [`Spec`] like a policy; [`build`] does not create them.
pub fn unified() -> &'static [Info] {
    UNIFIED
}

impl Info {
    /// Whether it decides for all levels of a cache at once.
    pub fn is_unified(&self) -> bool {
        UNIFIED.iter().any(|info| info.name == self.name)
    }
}

impl Spec {
    /// The parameter `first` of `ulc`: `out`, `last` or `adapt`.
    ///
    /// # Panics
    /// If it decides for one cache only.
    pub fn first(&self) -> Result<&'static str, SpecError> {
        crate::ulc::first(&self.params(self.info())?)
    }

    /// Whether it decides for all levels of a cache at once.
    pub fn is_unified(&self) -> bool {
        self.info().is_unified()
    }

    /// Whether it, or one of the policies that it chooses among, depends on which blocks are neighbours.
    pub fn is_spatial(&self) -> bool {
        let info = self.info();
        let params = self.params(info).expect("a parsed policy has valid parameters");
        let mut lists = info.params.iter().filter(|param| param.values == Values::Policies);
        info.spatial
            || lists.any(|param| params.policies(param.key).is_ok_and(|specs| specs.iter().any(Spec::is_spatial)))
    }

    /// The parameters that have a default which is not the published value, and were not given.
    pub fn unpublished(&self) -> impl Iterator<Item = &'static Param> {
        self.info().params.iter().filter(|param| param.published.is_some() && !self.gives(param.key))
    }

    /// The description of its policy.
    pub fn info(&self) -> &'static Info {
        find(self.name()).expect("a parsed policy is registered")
    }
}

/// The description of the policy called `name`.
fn find(name: &str) -> Result<&'static Info, SpecError> {
    let all = || REGISTRY.iter().chain(UNIFIED);
    all().find(|info| info.name == name).ok_or_else(|| SpecError::UnknownPolicy {
        name: name.to_owned(),
        near: nearest(name, all().map(|info| info.name)),
    })
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let mut spec = Spec::parse(text)?;
        if let Some((_, name)) = OTHER_NAMES.iter().find(|(other, _)| *other == spec.name()) {
            spec = spec.renamed(name);
        }
        let info = find(spec.name())?;
        let params = spec.params(info)?;
        let mut lists = info.params.iter().filter(|param| param.values == Values::Policies);
        lists.try_for_each(|param| params.policies(param.key).map(drop))?;
        Ok(spec)
    }
}

impl Params {
    /// Policies for one cache with their defaults, joined by `+`: each once, at most 32.
    pub(crate) fn policies(&self, key: &str) -> Result<Vec<Spec>, SpecError> {
        let of = |name: &str| {
            let spec: Spec = name.parse().ok()?;
            let info = spec.info();
            (!name.contains(':') && !info.is_unified() && !info.offline && info.name != AUTO).then_some(spec)
        };
        let specs = self.text(key).split('+').map(of).collect::<Option<Vec<Spec>>>();
        let once = |specs: &Vec<Spec>| specs.iter().enumerate().all(|(at, spec)| !specs[..at].contains(spec));
        let fits = specs.filter(|specs| once(specs) && specs.len() <= u32::BITS as usize);
        fits.ok_or_else(|| self.impossible(key))
    }
}

/// The policies of a list, each once; `all` is every one for one cache. An error comes with the name that is wrong.
pub fn parse_list<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Spec>, (&'a str, SpecError)> {
    let mut specs: Vec<Spec> = Vec::new();
    for name in names {
        let named = if name == "all" { REGISTRY.iter().map(|info| info.name).collect() } else { vec![name] };
        for text in named {
            let spec = text.parse().map_err(|error| (name, error))?;
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
    }
    Ok(specs)
}

/// Creates the policy that `spec` describes, for a host that chooses it at run time.
pub fn build(spec: &Spec, setup: &Setup) -> Result<Box<dyn Policy + Send>, SpecError> {
    visit(spec, setup, Boxed::<true>)
}

/// Creates the policy with room for one block and `slots` slots, such that it can grow to the room of `setup`: a host that cannot wait until all
/// is allocated grows it in steps.
pub fn build_to_grow(spec: &Spec, slots: u32, setup: &Setup) -> Result<Box<dyn Policy + Send>, SpecError> {
    let first = Setup { capacity: 1, slots, ghosts: 0, ..setup.clone() };
    let with = |first: &Setup| match build(spec, first)? {
        small if small.slots_most() < setup.slots => visit(spec, first, Boxed::<false>),
        policy => Ok(policy),
    };
    // Parameters may be numbers of blocks, for which one block is too few at first.
    with(&first).or_else(|_| {
        let mut policy = with(&Setup { capacity: setup.capacity.max(1), ..first })?;
        policy.resize(Room { capacity: 1, slots, ghosts: 0 });
        Ok(policy)
    })
}

struct Boxed<const SMALL: bool>;

impl<const SMALL: bool> Visit for Boxed<SMALL> {
    type Out = Box<dyn Policy + Send>;
    const SMALL: bool = SMALL;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out {
        Box::new(policy)
    }
}

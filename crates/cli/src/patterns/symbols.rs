//! Return addresses of a recording as names of functions.

use std::collections::HashMap;
use std::path::Path;

use nigh_record::Symbols;

/// The programs and libraries of a recording, each read when the first of its addresses is looked up.
#[derive(Default)]
pub(super) struct Resolver<'a> {
    /// By name: the path, and the build id at the time of the recording.
    modules: HashMap<&'a str, (&'a Path, &'a str)>,
    read: HashMap<&'a str, Option<Symbols>>,
}

impl<'a> Resolver<'a> {
    /// `modules` are paths with build ids.
    pub(super) fn new(modules: &'a [(String, String)]) -> Resolver<'a> {
        let named = modules.iter().filter_map(|(path, id)| {
            let path = Path::new(path);
            Some((path.file_name()?.to_str()?, (path, id.as_str())))
        });
        Resolver { modules: named.collect(), read: HashMap::new() }
    }

    /// The stack with `module:function` in place of each `module+0xOFFSET` whose function is known.
    pub(super) fn stack(&mut self, stack: &str) -> String {
        let frames = stack.split(';').map(|frame| self.frame(frame).unwrap_or_else(|| frame.to_owned()));
        frames.collect::<Vec<_>>().join(";")
    }

    fn frame(&mut self, frame: &str) -> Option<String> {
        let (module, offset) = frame.rsplit_once("+0x")?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let (&name, &(path, id)) = self.modules.get_key_value(module)?;
        let symbols = self.read.entry(name).or_insert_with(|| Symbols::read(path, id)).as_ref()?;
        Some(format!("{module}:{}", symbols.find(offset)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_addresses_stay() {
        let modules = [("/no/such/program".to_owned(), "00".to_owned())];
        let mut resolver = Resolver::new(&modules);
        for stack in ["", "program+0x12", "program+0x12;?+0x3;libx.so+0xzz"] {
            assert_eq!(resolver.stack(stack), stack);
        }
    }
}

//! Names of functions, from the symbols of a program or library.

use std::path::{Path, PathBuf};

use object::read::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use object::{File, SymbolKind};

use crate::build_id;
use crate::program::open_file;

/// Distributions install separate symbols below this folder, by build id.
const DEBUG: &str = "/usr/lib/debug/.build-id";
/// The most symbols of a file.
const SYMBOLS_MOST: usize = 1 << 20;
/// The most characters of a name that are kept.
const NAME_MOST: usize = 120;
/// Segments begin at pages.
const PAGE: u64 = 4096;

/// The functions of a program or library, by place.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The place and the length of each function, by place. One whose file does not give the length ends where its segment does. Places are counted from where the first
    /// segment is mapped, as those of recordings are.
    functions: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// The functions of the file at `path`, if it still is the build with this id: those that it has symbols for, exported or not, and
    /// those of its separate debug symbols, where they are installed.
    pub fn read(path: &Path, id: &str) -> Option<Symbols> {
        if build_id(path)? != id {
            return None;
        }
        let mut functions = functions(path).unwrap_or_default();
        let (first, rest) = id.split_at_checked(2)?;
        let separate: PathBuf = [DEBUG, first, &format!("{rest}.debug")].iter().collect();
        if build_id(&separate).as_deref() == Some(id) {
            functions.extend(self::functions(&separate).unwrap_or_default());
        }
        // Of several names for one place, the shortest, which is mostly the one without a version or a prefix.
        functions.sort_by(|one, other| (one.0, one.2.len(), &one.2).cmp(&(other.0, other.2.len(), &other.2)));
        functions.dedup_by_key(|(place, ..)| *place);
        Some(Symbols { functions })
    }

    /// The name of the function that contains the call before the return address `offset`.
    pub fn find(&self, offset: u64) -> Option<&str> {
        let call = offset.checked_sub(1)?;
        let after = self.functions.partition_point(|(place, ..)| *place <= call);
        let (place, length, name) = self.functions.get(after.checked_sub(1)?)?;
        (call - place < *length).then_some(name)
    }
}

fn functions(path: &Path) -> Option<Vec<(u64, u64, String)>> {
    let cache = ReadCache::new(open_file(path).ok()?);
    let file = File::parse(&cache).ok()?;
    let begin = file.segments().map(|segment| segment.address()).min()? / PAGE * PAGE;
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let each = functions.filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        let name = name.chars().take(NAME_MOST).map(|c| if c.is_control() { '?' } else { c }).collect();
        let address = symbol.address();
        let segments =
            || file.segments().map(|segment| segment.address()..segment.address().saturating_add(segment.size()));
        let length = match symbol.size() {
            0 => segments().find(|segment| segment.contains(&address))?.end - address,
            length => length,
        };
        Some((address.checked_sub(begin)?, length, name))
    });
    Some(each.take(SYMBOLS_MOST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of this program, by where it is mapped.
    #[test]
    fn functions_are_found_by_their_return_addresses() {
        let path = std::env::current_exe().unwrap();
        let id = build_id(&path).unwrap();
        let symbols = Symbols::read(&path, &id).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).unwrap();
        let begin = u64::from_str_radix(own.split('-').next().unwrap(), 16).unwrap();
        let function: fn() = functions_are_found_by_their_return_addresses;
        let offset = function as *const () as u64 - begin;
        let found = symbols.find(offset + 1).unwrap();
        assert!(found.contains("functions_are_found_by_their_return_addresses"), "{found}");
        // The address of the function itself is the return address of a call that ends the one before.
        assert!(symbols.find(offset).is_none_or(|name| name != found));
        assert!(symbols.find(0).is_none() && symbols.find(u64::MAX).is_none());
        assert!(Symbols::read(&path, "00ff").is_none(), "another build");
        assert!(Symbols::read(Path::new("/dev/null"), &id).is_none());
    }
}

//! URIs of exports, in the NBD project's form.

use std::os::unix::ffi::OsStrExt;

use nigh_nbd::uri::encode;
use nigh_service::Listen;

/// `export` as clients of `address` name it, over TCP with TLS if `tls`.
pub(crate) fn uri(address: &Listen, export: &str, tls: bool) -> String {
    let export = encode(export.as_bytes(), b"/");
    match address {
        Listen::Unix(path) => {
            format!("nbd+unix:///{export}?socket={}", encode(path.as_os_str().as_bytes(), b"/"))
        }
        Listen::Tcp(address) => format!("nbd{}://{address}/{export}", if tls { "s" } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_escaped_and_absolute() {
        let uri = |address: &str, export, tls| uri(&address.parse::<Listen>().unwrap().absolute(), export, tls);
        assert_eq!(uri("unix:/run/a b?.sock", "", false), "nbd+unix:///?socket=/run/a%20b%3F.sock");
        assert!(uri("unix:nigh.sock", "d", false).starts_with("nbd+unix:///d?socket=/"));
        assert_eq!(uri("tcp:[::1]:10809", "vm/1&ü", false), "nbd://[::1]:10809/vm/1%26%C3%BC");
        assert_eq!(uri("tcp:127.0.0.1:9", "d", true), "nbds://127.0.0.1:9/d");
    }
}

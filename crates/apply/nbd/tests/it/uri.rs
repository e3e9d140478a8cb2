//! URIs of exports.

use nigh_nbd::uri::{Address, Uri, UriError};

#[test]
fn uris_are_shown_as_they_are_parsed() {
    let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
    for (text, address, export) in [
        ("nbd://example.com/disk", tcp("example.com", 10809), "disk"),
        ("nbd://example.com/", tcp("example.com", 10809), ""),
        ("nbd://example.com:1234//disk", tcp("example.com", 1234), "/disk"),
        ("nbd://[::1]:1234/hello%20world", tcp("::1", 1234), "hello world"),
        ("nbd://[fe80::1%25eth0]/", tcp("fe80::1%eth0", 10809), ""),
        ("nbd://a%40b%2Fc/d", tcp("a@b/c", 10809), "d"),
        ("nbd+unix:///?socket=/run/a.sock", Address::Unix("/run/a.sock".into()), ""),
        ("nbd+unix:///%C3%A9%25?socket=a%26b%2Cc", Address::Unix("a&b,c".into()), "é%"),
    ] {
        let uri: Uri = text.parse().unwrap();
        assert_eq!((&uri.address, uri.export.as_str()), (&address, export));
        assert_eq!(uri.to_string(), text);
    }
    assert_eq!("nbd://example.com".parse::<Uri>().unwrap().to_string(), "nbd://example.com/");
    let uri: Uri = "nbd+unix:///d?x-a=1s&socket=s&x-b=".parse().unwrap();
    assert_eq!(uri.extensions, [("x-a".to_owned(), "1s".to_owned()), ("x-b".to_owned(), String::new())]);
    assert_eq!(uri.to_string(), "nbd+unix:///d?socket=s&x-a=1s&x-b=");
}

#[test]
fn slips_are_explained() {
    let wrong = |text: &str| text.parse::<Uri>().unwrap_err();
    assert_eq!(wrong("nbds://example.com/disk"), UriError::Tls);
    assert_eq!(wrong("nbd:example.com:10809"), UriError::Form);
    assert_eq!(wrong("nbd:///disk"), UriError::Form);
    assert_eq!(wrong("nbd://[::1/disk"), UriError::Form);
    assert_eq!(wrong("nbd://a:0/disk"), UriError::Port("0".to_owned()));
    assert_eq!(wrong("nbd://a:http/disk"), UriError::Port("http".to_owned()));
    assert_eq!(wrong("nbd://alice@a/disk"), UriError::Superfluous("alice@a".to_owned()));
    assert_eq!(wrong("nbd+unix://a/disk?socket=b"), UriError::Superfluous("a".to_owned()));
    assert_eq!(wrong("nbd+unix:///disk"), UriError::Socket);
    assert_eq!(wrong("nbd+unix:///disk?socket="), UriError::Parameter("socket".to_owned()));
    assert_eq!(wrong("nbd://a/disk?socket=b"), UriError::Parameter("socket".to_owned()));
    assert_eq!(wrong("nbd://a/disk?tls-type=x509"), UriError::Parameter("tls-type".to_owned()));
    assert_eq!(wrong("nbd://a/%zz"), UriError::Encoding("%zz".to_owned()));
    assert_eq!(wrong("nbd://a/%ff"), UriError::Encoding("%ff".to_owned()));
    assert_eq!(wrong("nbd://a/%00"), UriError::Name);
}

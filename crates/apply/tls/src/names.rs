//! The names in a certificate.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Any, Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The names of the first certificate of `chain`, which is that of the other side: its alternative names, or if it has none, common
/// names. None without a certificate.
pub fn names(chain: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let certificate = chain.and_then(|chain| chain.first());
    certificate.and_then(|der| Certificate::from_der(der).ok()).map_or_else(Vec::new, |found| names_of(&found))
}

fn names_of(certificate: &Certificate) -> Vec<String> {
    let alternatives = match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(alternatives)))) => alternatives,
        Ok(None) => Vec::new(),
        // It may have names that are not understood.
        Err(_) => return Vec::new(),
    };
    let name = |name: &GeneralName| match name {
        GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => {
            Some(name.to_string())
        }
        _ => None,
    };
    let names: Vec<String> = alternatives.iter().filter_map(name).collect();
    if !names.is_empty() {
        // The common name is then a text for people (RFC 6125, 6.4.4).
        return names;
    }
    let subject = &certificate.tbs_certificate.subject;
    let attributes = subject.0.iter().flat_map(|names| names.0.iter());
    attributes.filter(|attribute| attribute.oid == CN).filter_map(|attribute| text(&attribute.value)).collect()
}

/// The text of an attribute.
fn text(value: &Any) -> Option<String> {
    Some(match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str().to_owned(),
        _ => return None,
    })
}

//! The page: its template, what fills it, and the report embedded as JSON.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::Report;

const TEMPLATE: &str = include_str!("../assets/page.html");
const LIVE: &str = include_str!("../assets/live.html");

/// Text for each `{{file}}` of the templates.
const ASSETS: [(&str, &str); 11] = [
    ("levels.js", include_str!("../assets/levels.js")),
    ("live.css", include_str!("../assets/live.css")),
    ("live.js", include_str!("../assets/live.js")),
    ("page.css", include_str!("../assets/page.css")),
    ("page.js", include_str!("../assets/page.js")),
    ("svg.js", include_str!("../assets/svg.js")),
    ("traces.js", include_str!("../assets/traces.js")),
    ("parts.js", include_str!("../assets/parts.js")),
    ("uPlot.LICENSE", include_str!("../assets/uPlot.LICENSE")),
    ("uPlot.iife.min.js", include_str!("../assets/uPlot.iife.min.js")),
    ("uPlot.min.css", include_str!("../assets/uPlot.min.css")),
];

/// Writes `template`, with assets in the place of their names; `own` writes the one thing that is no asset, and has this name.
fn fill<W: io::Write>(
    out: &mut W,
    template: &str,
    name_of_own: &str,
    own: impl Fn(&mut W) -> io::Result<()>,
) -> io::Result<()> {
    let mut parts = template.split("{{");
    out.write_all(parts.next().unwrap_or_default().as_bytes())?;
    for part in parts {
        let (name, text) = part.split_once("}}").expect("a placeholder of the template ends");
        if name == name_of_own {
            own(out)?;
        } else {
            let asset = ASSETS.iter().find(|(file, _)| *file == name).expect("the template names an asset");
            out.write_all(asset.1.as_bytes())?;
        }
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

impl Report {
    /// Writes the page. Every error is one of `out`.
    pub fn write_html(&self, mut out: impl io::Write) -> io::Result<()> {
        fill(&mut out, TEMPLATE, "report", |out| {
            Ok(self.serialize(&mut Serializer::with_formatter(out, InScript(CompactFormatter)))?)
        })
    }
}

/// The page of a server: it asks the server that it comes from for `history.json` and `json`, and shows them. Its scripts and styles have
/// the attribute `nonce` with this value, of letters and digits, for a content security policy.
pub fn live_page(nonce: &str) -> String {
    assert!(nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "a nonce has letters and digits");
    let mut page = Vec::new();
    fill(&mut page, LIVE, "nonce", |page| io::Write::write_all(page, nonce.as_bytes())).expect("memory takes any page");
    String::from_utf8(page).expect("the template and assets are text")
}

/// JSON that can stand in a `script` element. Only strings can contain `<`, and without it neither `</script>` nor
/// `<!--` can occur.
struct InScript(CompactFormatter);

impl Formatter for InScript {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for (i, text) in fragment.split('<').enumerate() {
            if i > 0 {
                out.write_all(b"\\u003c")?;
            }
            self.0.write_string_fragment(out, text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(report: &Report) -> String {
        let mut page = Vec::new();
        report.write_html(&mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn every_placeholder_is_filled() {
        let (page, live) = (html(&Report::default()), live_page("5ecre7"));
        for (name, text) in ASSETS {
            assert!(page.contains(text) || live.contains(text), "{name}");
            assert!(!page.contains(&format!("{{{{{name}}}}}")) && !live.contains(&format!("{{{{{name}}}}}")), "{name}");
        }
        let elements = live.matches("<script").count() + live.matches("<style").count();
        assert!(elements > 3 && live.matches("nonce=\"5ecre7\">").count() == elements, "each element has the nonce");
    }

    #[test]
    #[should_panic(expected = "letters and digits")]
    fn a_nonce_does_not_end_its_attribute() {
        live_page("a\">");
    }

    #[test]
    fn embedded_json_is_the_report_and_cannot_end_its_element() {
        let hostile = "</script><!-- <script> \u{2028}\"\\".to_string();
        let report = Report { title: hostile.clone(), notes: vec![hostile], ..Report::default() };
        let page = html(&report);
        let start = page.find(r#"id="report">"#).unwrap() + r#"id="report">"#.len();
        let json = &page[start..start + page[start..].find("</script>").unwrap()];
        assert!(!json.contains('<'));
        assert_eq!(serde_json::from_str::<Report>(json).unwrap(), report);
    }

    #[test]
    fn assets_do_not_end_their_elements() {
        for (name, text) in ASSETS {
            for end in ["</script", "</style", "<!--"] {
                assert!(!text.contains(end), "{name} contains {end}");
            }
        }
    }
}

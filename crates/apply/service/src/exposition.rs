//! The forms of statistics for Prometheus: OpenMetrics, and the classic text format, which others and older versions read.

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposition {
    OpenMetrics,
    Classic,
}

impl Exposition {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that a client with this `Accept` prefers (RFC 9110, 12.5.1): OpenMetrics only if it is named.
    pub(crate) fn preferred(accept: &str) -> Exposition {
        let (mut open, mut classic) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |text| text.parse().ok());
            let quality: f64 = quality.unwrap_or(0.0);
            match &*name {
                "application/openmetrics-text" => open = quality.max(open),
                "text/plain" | "text/*" | "*/*" => classic = quality.max(classic),
                _ => {}
            }
        }
        if open > 0.0 && open >= classic { Exposition::OpenMetrics } else { Exposition::Classic }
    }
}

/// A page of OpenMetrics in the classic format: there, a counter has its sample's name, and there are no units and no end marker.
pub(crate) fn classic(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), words) => help = Some(words.unwrap_or_default()),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some(help) = help.take() {
                    text += &format!("# HELP {name}{suffix} {help}\n");
                }
                text += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            (Some("#"), ..) => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_8_clients_get_what_they_prefer() {
        use Exposition::{Classic, OpenMetrics};
        for (accept, expected) in [
            ("", Classic),
            ("*/*", Classic),
            ("text/html, */*;q=0.5", Classic),
            ("application/openmetrics-text", OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=1.0.0;q=0.2, text/plain;q=0.9", Classic),
            ("Application/OpenMetrics-Text; charset=utf-8 ; q=0.3", OpenMetrics),
            ("application/openmetrics-text;q=0", Classic),
            ("application/openmetrics-text;q=x", Classic),
            (";;,q=,", Classic),
        ] {
            assert_eq!(Exposition::preferred(accept), expected, "{accept}");
        }
    }

    #[test]
    fn metrics_8_the_classic_format_calls_counters_as_their_samples() {
        let page = "# HELP a_reads Reads of a.\n# TYPE a_reads counter\n# UNIT a_reads x\na_reads_total{export=\"# TYPE b\"} 5\n\
                    # HELP a_b Bytes.\n# TYPE a_b gauge\na_b 7\n# EOF\n";
        let expected = "# HELP a_reads_total Reads of a.\n# TYPE a_reads_total counter\na_reads_total{export=\"# TYPE b\"} 5\n\
                        # HELP a_b Bytes.\n# TYPE a_b gauge\na_b 7\n";
        assert_eq!(classic(page), expected);
    }
}

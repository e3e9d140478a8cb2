//! Several clients in one sequence of requests, for `nigh sim --levels --clients`: the stream of a request is its client.

use std::collections::HashMap;

use nigh_trace::{Request, Requests};

use crate::source::{self, Opened, Source};

/// Requests of a batch.
const BATCH: usize = 4096;

/// The clients of the traces, and their names, if each is one.
pub(crate) fn clients(opened: Vec<Opened>) -> anyhow::Result<(Source, Box<dyn Requests + Send>, Vec<String>)> {
    if opened.len() == 1 {
        let (source, requests) = opened.into_iter().next().expect("one trace");
        return Ok((source, Box::new(Tenants(requests)), Vec::new()));
    }
    let names = opened.iter().map(|(source, _)| source.name.clone()).collect();
    let (source, parts) = source::together(opened, "--clients")?;
    Ok((source, Box::new(Merged::new(parts)?), names))
}

/// The tenants of one trace.
struct Tenants(Box<dyn Requests + Send>);

impl Requests for Tenants {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
        self.0.next_batch(batch)?;
        // The issuer of a request without a stream is its tenant.
        batch.iter_mut().for_each(|request| request.stream = 0);
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        self.0.progress()
    }
}

/// Traces at the same time, each a client with volumes of its own. All begin at once. If one has no times, they take turns.
struct Merged {
    parts: Vec<Part>,
    are_timed: bool,
    volumes: HashMap<(usize, u32), u32>,
}

struct Part {
    requests: Box<dyn Requests + Send>,
    batch: Vec<Request>,
    /// The next request of the batch.
    next: usize,
    begin_ns: u64,
    taken: u64,
}

impl Part {
    /// The batch has a next request, unless the trace is over.
    fn fill(&mut self) -> nigh_trace::Result<()> {
        if self.next == self.batch.len() {
            self.next = 0;
            self.requests.next_batch(&mut self.batch)?;
        }
        Ok(())
    }

    fn is_timed(&self) -> bool {
        self.batch.len() < 2 || self.batch.iter().any(|request| request.time_ns != self.begin_ns)
    }
}

impl Merged {
    fn new(parts: Vec<Box<dyn Requests + Send>>) -> nigh_trace::Result<Merged> {
        let parts = parts.into_iter().map(|requests| {
            let mut part = Part { requests, batch: Vec::new(), next: 0, begin_ns: 0, taken: 0 };
            part.fill()?;
            part.begin_ns = part.batch.first().map_or(0, |request| request.time_ns);
            Ok(part)
        });
        let parts = parts.collect::<nigh_trace::Result<Vec<Part>>>()?;
        let are_timed = parts.iter().all(Part::is_timed);
        Ok(Merged { parts, are_timed, volumes: HashMap::new() })
    }

    fn next(&mut self) -> nigh_trace::Result<Option<Request>> {
        let due = |part: &Part| {
            let request = part.batch.get(part.next)?;
            let time = if self.are_timed { request.time_ns.saturating_sub(part.begin_ns) } else { 0 };
            Some((time, part.taken))
        };
        let parts = self.parts.iter().enumerate();
        let Some((_, client)) = parts.filter_map(|(client, part)| Some((due(part)?, client))).min() else {
            return Ok(None);
        };
        let part = &mut self.parts[client];
        let mut request = part.batch[part.next];
        part.next += 1;
        part.taken += 1;
        part.fill()?;
        let free = self.volumes.len() as u32;
        request.volume = *self.volumes.entry((client, request.volume)).or_insert(free);
        request.time_ns = request.time_ns.saturating_sub(part.begin_ns);
        (request.tenant, request.stream) = (client as u32, 0);
        Ok(Some(request))
    }
}

impl Requests for Merged {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
        batch.clear();
        while batch.len() < BATCH
            && let Some(request) = self.next()?
        {
            batch.push(request);
        }
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        let parts = self.parts.iter().map(|part| part.requests.progress());
        parts.sum::<Option<f64>>().map(|sum| sum / self.parts.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given(Vec<Vec<Request>>);

    impl Requests for Given {
        fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
            *batch = if self.0.is_empty() { Vec::new() } else { self.0.remove(0) };
            Ok(())
        }

        fn progress(&self) -> Option<f64> {
            None
        }
    }

    fn merged(parts: &[&[u64]]) -> Vec<(u32, u32, u64)> {
        let parts = parts.iter().map(|times| {
            let requests = times.iter().map(|&time_ns| Request { time_ns, length: 1, stream: 9, ..Request::default() });
            let requests: Vec<Request> = requests.collect();
            let batches = requests.chunks(2).map(<[Request]>::to_vec).collect();
            Box::new(Given(batches)) as Box<dyn Requests + Send>
        });
        let mut merged = Merged::new(parts.collect()).unwrap();
        let mut batch = Vec::new();
        merged.next_batch(&mut batch).unwrap();
        assert!(batch.iter().all(|request| request.issuer() == u64::from(request.tenant)));
        batch.iter().map(|request| (request.tenant, request.volume, request.time_ns)).collect()
    }

    #[test]
    fn clients_begin_at_once() {
        let found = merged(&[&[100, 105, 190], &[1000, 1004, 1010, 1011]]);
        let expected = [(0, 0, 0), (1, 1, 0), (1, 1, 4), (0, 0, 5), (1, 1, 10), (1, 1, 11), (0, 0, 90)];
        assert_eq!(found, expected);
    }

    #[test]
    fn clients_without_times_take_turns() {
        let found = merged(&[&[0, 0, 0], &[7, 8]]);
        assert_eq!(found.iter().map(|&(client, ..)| client).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
    }
}

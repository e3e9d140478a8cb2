//! The log of the policies that are chosen (`auto`), for the whole cache or for each tenant.

use std::collections::BTreeMap;

use nigh_host::{ChoiceStatistics, Host};

/// The choices when they were last looked at, by tenant; the name of the whole cache is empty.
#[derive(Default)]
pub(crate) struct Choices(BTreeMap<String, Choice>);

struct Choice {
    in_charge: String,
    /// Since the start.
    changes: u64,
}

/// Another policy took charge, once or several times.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    tenant: String,
    before: String,
    now: String,
    changes: u64,
}

impl Choices {
    /// Logs each policy that took charge since the last call.
    pub(crate) fn log(&mut self, host: &Host) {
        let tenants = host.tenant_statistics().into_iter().map(|of| (of.name, of.chosen));
        let all = tenants.chain([(String::new(), host.host_statistics().chosen)]);
        let choice = |of: ChoiceStatistics| Choice { in_charge: of.in_charge(), changes: of.changes };
        let all = all.filter_map(|(tenant, chosen)| Some((tenant, choice(chosen?)))).collect();
        for Change { tenant, before, now, changes } in self.replace(all) {
            tracing::info!(tenant, changes, "auto: {now} decides, and {before} did before");
        }
    }

    fn replace(&mut self, all: BTreeMap<String, Choice>) -> Vec<Change> {
        let before = std::mem::replace(&mut self.0, all);
        let change = |(tenant, before): (String, Choice)| {
            let now = self.0.get(&tenant)?;
            // A policy that was set anew counts from the start.
            let changes = now.changes.checked_sub(before.changes).filter(|&changes| changes > 0)?;
            Some(Change { tenant, before: before.in_charge, now: now.in_charge.clone(), changes })
        };
        before.into_iter().filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_take_charge_are_named_once() {
        let mut choices = Choices::default();
        let mut replace = |all: &[(&str, &str, u64)]| {
            let choice = |&(tenant, policy, changes): &(&str, &str, u64)| {
                (tenant.to_owned(), Choice { in_charge: policy.into(), changes })
            };
            choices.replace(all.iter().map(choice).collect())
        };
        assert_eq!(replace(&[("", "lirs", 0)]), [], "the first one");
        assert_eq!(replace(&[("", "lirs", 0), ("db", "mq", 4)]), [], "a new tenant");
        let change = Change { tenant: "db".into(), before: "mq".into(), now: "mq".into(), changes: 2 };
        assert_eq!(replace(&[("", "lirs", 0), ("db", "mq", 6)]), [change], "another one, and mq again");
        assert_eq!(replace(&[("db", "lirs", 0)]), [], "the policy was set anew");
    }
}

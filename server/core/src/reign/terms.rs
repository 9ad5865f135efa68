//! The terms under which leases were granted that may last, as far as storage has them.
//!
//! A holder that states no unit counts in the unit that it was last told. So the next master must
//! know the units of all leases that may last, whatever its own document says. No lease is reported
//! in a unit that is not stored.

use std::sync::Arc;

use doorman_openapi::Moment;

use super::writes::BoundWrites;
use crate::ledger::{
    EarlierTemplate, EarlierTerms, Grant, GrantingTerms, KnownTerms, Units, merge_generations,
};

/// The most generations of replaced terms that are stored as they were, and their templates.
const MAX_REPLACED: usize = 8;
const MAX_REPLACED_TEMPLATES: usize = 20_000;
/// The same for merged terms, and for those that cannot be merged.
const MAX_MERGED: usize = 64;
const MAX_MERGED_TEMPLATES: usize = 50_000;

/// Terms that were in force at one time: templates in the order of their document.
pub type TermsGeneration = Arc<[EarlierTemplate]>;

/// Terms that should be written.
#[derive(Debug, Clone, PartialEq)]
pub struct DueTerms {
    /// Counts the terms of a reign.
    pub version: u64,
    /// All generations of which leases may last. They replace those that are stored.
    pub generations: Vec<TermsGeneration>,
}

impl DueTerms {
    fn has(&self, terms: &TermsGeneration) -> bool {
        let mut generations = self.generations.iter();
        generations.any(|it| Arc::ptr_eq(it, terms) || it == terms)
    }
}

/// The terms of a reign and of the leases before it. The ledger changes them, the election writes
/// them.
#[derive(Debug, Clone)]
pub struct DurableTerms {
    generations: Vec<Lasting>,
    /// The end of the leases of earlier reigns.
    earlier_end: Moment,
    /// Of `generations`, and of those that are stored.
    version: u64,
    written: u64,
    /// The terms that storage has and keeps.
    durable: EarlierTerms,
    writes: BoundWrites,
}

#[derive(Debug, Clone)]
struct Lasting {
    terms: TermsGeneration,
    /// When the last lease under them ends; [`Moment::NEVER`] while they are in force.
    until: Moment,
    is_stored: bool,
}

impl DurableTerms {
    /// Begins with the generations of earlier leases, some of which are stored already. None is in
    /// force. All leases under them end by `earlier_end`.
    #[must_use]
    pub fn new(
        stored: &[TermsGeneration],
        others: &[TermsGeneration],
        earlier_end: Moment,
    ) -> Self {
        let lasting = |is_stored| {
            move |terms: &TermsGeneration| Lasting {
                terms: Arc::clone(terms),
                until: earlier_end,
                is_stored,
            }
        };
        let others = others.iter().filter(|it| !stored.contains(it));
        let others: Vec<_> = others.map(lasting(false)).collect();
        let version = others.len() as u64;
        let generations = stored.iter().map(lasting(true)).chain(others);
        Self {
            generations: generations.collect(),
            earlier_end,
            version,
            written: 0,
            durable: earlier_terms(stored),
            writes: BoundWrites::default(),
        }
    }

    /// Puts terms in force. Those before are kept until all leases under them have ended, by
    /// `ends`.
    pub fn note(&mut self, terms: GrantingTerms, ends: Moment) {
        let ends = ends.max(self.earlier_end);
        for generation in &mut self.generations {
            if generation.until == Moment::NEVER {
                generation.until = ends;
            }
        }
        let before = self.version;
        for templates in terms.generations {
            let mut known = self.generations.iter_mut();
            match known.find(|it| *it.terms == *templates) {
                Some(known) => known.until = Moment::NEVER,
                None => {
                    self.version += 1;
                    self.generations.push(Lasting {
                        terms: templates.into(),
                        until: Moment::NEVER,
                        is_stored: false,
                    });
                }
            }
        }
        if self.version > before {
            self.merge_replaced();
        }
    }

    /// The terms to write now; `None` while the stored ones are right.
    #[must_use]
    pub fn due(&mut self, now: Moment) -> Option<DueTerms> {
        if self.drop_ended(now) {
            // The next write removes them.
            self.durable = self.stored();
        }
        (!self.is_stored()).then(|| DueTerms {
            version: self.version,
            generations: (self.generations.iter())
                .map(|it| Arc::clone(&it.terms))
                .collect(),
        })
    }

    /// Records terms that are durable.
    pub fn record_written(&mut self, written: &DueTerms) {
        self.writes.written += 1;
        self.written = written.version;
        for generation in &mut self.generations {
            generation.is_stored = written.has(&generation.terms);
        }
        self.durable = self.stored();
    }

    /// Records that terms could not be written.
    pub fn record_failure(&mut self) {
        self.writes.failed += 1;
    }

    /// How often they were written.
    #[must_use]
    pub fn writes(&self) -> BoundWrites {
        self.writes
    }

    /// Whether all terms in force are stored, so that no lease needs to wait.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.version == self.written
    }

    /// How much of the terms of these leases is stored.
    #[must_use]
    pub fn known(&self, granted: &[Grant]) -> KnownTerms {
        if self.is_stored() {
            return KnownTerms::All;
        }
        self.durable.known(granted)
    }

    /// Drops generations without leases. Returns whether there were any.
    fn drop_ended(&mut self, now: Moment) -> bool {
        let before = self.generations.len();
        self.generations.retain(|it| now < it.until);
        let has_dropped = self.generations.len() < before;
        self.version += u64::from(has_dropped);
        has_dropped
    }

    /// The terms in force and before that storage has and keeps.
    fn stored(&self) -> EarlierTerms {
        let stored = self.generations.iter().filter(|it| it.is_stored);
        earlier_terms(stored.map(|it| &it.terms))
    }

    /// Merges replaced generations if they are too many.
    fn merge_replaced(&mut self) {
        let is_replaced = |it: &&Lasting| it.until < Moment::NEVER;
        let replaced = self.generations.iter().filter(is_replaced);
        let until = replaced.clone().map(|it| it.until).max();
        let replaced: Vec<_> = replaced.map(|it| &*it.terms).collect();
        if is_within(&replaced, MAX_REPLACED, MAX_REPLACED_TEMPLATES) {
            return;
        }
        let merged = match merge_generations(&replaced) {
            Some(merged) if is_within(&merged, MAX_MERGED, MAX_MERGED_TEMPLATES) => merged,
            None if is_within(&replaced, MAX_MERGED, MAX_MERGED_TEMPLATES) => return,
            Some(_) | None => units_of_all(&replaced),
        };
        let merged = merged.into_iter().map(|templates| Lasting {
            terms: templates.into(),
            until: until.unwrap_or(Moment::ORIGIN),
            is_stored: false,
        });
        let merged: Vec<_> = merged.collect();
        self.generations.retain(|it| it.until == Moment::NEVER);
        self.generations.extend(merged);
    }
}

/// Whether these generations are few, and have few templates together.
fn is_within<T: AsRef<[EarlierTemplate]>>(
    generations: &[T],
    max: usize,
    max_templates: usize,
) -> bool {
    let templates: usize = generations.iter().map(|it| it.as_ref().len()).sum();
    generations.len() <= max && templates <= max_templates
}

/// For each unit in these generations one generation, which says that every resource may have had
/// it.
fn units_of_all(generations: &[&[EarlierTemplate]]) -> Vec<Vec<EarlierTemplate>> {
    let units: Units = generations.iter().copied().flatten().collect();
    let is_universal = |it: &EarlierTemplate| it.identifier_glob == "*";
    let mut merged = units.of_every_resource();
    if generations.iter().any(|it| !it.iter().any(is_universal)) {
        // Some resources had no template.
        merged.push(Vec::new());
    }
    merged
}

/// The terms of leases of all these generations, for the ledger of the next master.
pub fn earlier_terms<'a>(
    generations: impl IntoIterator<Item = &'a TermsGeneration>,
) -> EarlierTerms {
    EarlierTerms::new(generations.into_iter().map(|it| it.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use doorman_config::Document;
    use doorman_openapi::{CapacityRequest, Epoch};

    use super::*;
    use crate::{
        ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy},
        reign::{DurableBound, Reign},
    };

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

    fn document(templates: &[(&str, f64, f64)]) -> Arc<Document> {
        let mut text = "resources:\n".to_owned();
        for (glob, capacity, per) in templates {
            writeln!(
                text,
                "- {{identifier_glob: '{glob}', capacity: {capacity}, per: {per}, \
                 algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}"
            )
            .unwrap();
        }
        Arc::new(Document::parse(&text).unwrap())
    }

    /// A reign of 60 s leases, with what a predecessor has stored.
    fn reign(document: &Arc<Document>, stored: &[TermsGeneration]) -> Reign {
        let settings = Settings {
            max_leases: 10,
            unmatched: UnmatchedPolicy::Grant,
            predecessor: Predecessor::None,
            epoch: Epoch::ZERO,
        };
        let ledger = Ledger::new(Arc::clone(document), settings, NOW);
        let terms = DurableTerms::new(stored, &[], NOW.after_seconds(30.0));
        let bound = DurableBound::new(Moment::NEVER, u64::MAX).with_terms(terms);
        Reign::new(Epoch::ZERO, Moment::NEVER, ledger, bound)
    }

    fn terms(reign: &mut Reign) -> &mut DurableTerms {
        reign.bound_mut().terms_mut().unwrap()
    }

    fn reconfigure(reign: &mut Reign, document: &Arc<Document>) {
        let ledger = reign.ledger(NOW).unwrap();
        ledger.reconfigure(Arc::clone(document));
        reign.note_terms();
    }

    /// Leases a resource: what a response would report.
    fn lease(reign: &mut Reign, resource: &str) -> Vec<Grant> {
        let request = format!(
            r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5}}]}}"#
        );
        let request: CapacityRequest = serde_json::from_str(&request).unwrap();
        let granted = reign
            .ledger(NOW)
            .unwrap()
            .refresh(&request.clone().into(), NOW);
        reign.bound_mut().require(&granted);
        granted
    }

    fn write(reign: &mut Reign, now: Moment) -> Option<Vec<TermsGeneration>> {
        let due = terms(reign).due(now)?;
        terms(reign).record_written(&due);
        Some(due.generations)
    }

    fn globs(generations: &[TermsGeneration]) -> Vec<Vec<(&str, f64)>> {
        let globs = |it: &EarlierTemplate| it.per.get();
        (generations.iter())
            .map(|it| {
                it.iter()
                    .map(|it| (&*it.identifier_glob, globs(it)))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn replaced_terms_are_stored_until_their_leases_have_ended() {
        let [second, minute] = [1.0, 60.0].map(|per| document(&[("db", 10.0 * per, per)]));
        let mut reign = reign(&second, &[]);
        assert_eq!(globs(&write(&mut reign, NOW).unwrap()), [[("db", 1.0)]]);
        assert_eq!(write(&mut reign, NOW), None);
        lease(&mut reign, "db");

        reconfigure(&mut reign, &minute);
        let both = [[("db", 1.0)], [("db", 60.0)]];
        assert_eq!(globs(&write(&mut reign, NOW).unwrap()), both);
        assert_eq!(write(&mut reign, NOW.after_seconds(62.9)), None);
        let left = write(&mut reign, NOW.after_seconds(63.1)).unwrap();
        assert_eq!(globs(&left), [[("db", 60.0)]]);
    }

    #[test]
    fn unchanged_terms_are_not_written_again() {
        let second = document(&[("db", 10.0, 1.0)]);
        let stored = write(&mut reign(&second, &[]), NOW).unwrap();
        let mut next = reign(&second, &stored);
        assert_eq!(write(&mut next, NOW), None);
        reconfigure(&mut next, &document(&[("db", 10.0, 1.0)]));
        assert_eq!(write(&mut next, NOW.after_seconds(100.0)), None);
    }

    #[test]
    fn terms_of_the_predecessor_stay_as_long_as_its_leases() {
        let [second, minute] = [1.0, 60.0].map(|per| document(&[("db", 10.0 * per, per)]));
        let stored = write(&mut reign(&second, &[]), NOW).unwrap();
        let mut next = reign(&minute, &stored);
        let both = [[("db", 1.0)], [("db", 60.0)]];
        assert_eq!(globs(&write(&mut next, NOW).unwrap()), both);
        // They are in force for a while, without a lease.
        reconfigure(&mut next, &second);
        reconfigure(&mut next, &minute);
        assert_eq!(write(&mut next, NOW.after_seconds(29.9)), None);
        let left = write(&mut next, NOW.after_seconds(30.1)).unwrap();
        assert_eq!(globs(&left), [[("db", 60.0)]]);
    }

    #[test]
    fn terms_that_a_write_removes_are_not_known_any_more() {
        let [second, minute] = [1.0, 60.0].map(|per| document(&[("db", 10.0 * per, per)]));
        let mut reign = reign(&second, &[]);
        lease(&mut reign, "db");
        reconfigure(&mut reign, &minute);
        write(&mut reign, NOW).unwrap();
        let removing = terms(&mut reign).due(NOW.after_seconds(64.0)).unwrap();
        assert_eq!(globs(&removing.generations), [[("db", 60.0)]]);

        reconfigure(&mut reign, &second);
        let db = lease(&mut reign, "db");
        assert_eq!(terms(&mut reign).known(&db), KnownTerms::Nothing);
        terms(&mut reign).record_written(&removing);
        assert_eq!(terms(&mut reign).known(&db), KnownTerms::Nothing);
        write(&mut reign, NOW).unwrap();
        assert_eq!(terms(&mut reign).known(&db), KnownTerms::All);
    }

    #[test]
    fn terms_that_only_this_server_has_are_written() {
        let [second, minute] = [1.0, 60.0].map(|per| document(&[("db", 10.0 * per, per)]));
        let [second, minute] =
            [second, minute].map(|it| write(&mut reign(&it, &[]), NOW).unwrap().remove(0));
        let stored = [Arc::clone(&second)];
        let mut terms = DurableTerms::new(&stored, &[second, minute], NOW.after_seconds(30.0));
        let due = terms.due(NOW).unwrap();
        let both = [[("db", 1.0)], [("db", 60.0)]];
        assert_eq!(globs(&due.generations), both);
    }

    #[test]
    fn larger_capacity_needs_no_other_unit() {
        let [small, large] = [10.0, 20.0].map(|capacity| document(&[("db", capacity, 1.0)]));
        let mut reign = reign(&small, &[]);
        write(&mut reign, NOW).unwrap();
        reconfigure(&mut reign, &large);
        let db = lease(&mut reign, "db");
        assert_eq!(terms(&mut reign).known(&db), KnownTerms::Units);
    }

    #[test]
    fn template_that_another_one_hid_is_not_known() {
        let mut reign = reign(&document(&[("d*", 600.0, 60.0), ("*", 10.0, 1.0)]), &[]);
        write(&mut reign, NOW).unwrap();
        reconfigure(&mut reign, &document(&[("*", 10.0, 1.0)]));
        let db = lease(&mut reign, "db");
        assert_eq!(terms(&mut reign).known(&db), KnownTerms::Nothing);
    }

    #[test]
    fn many_replaced_terms_are_merged_and_every_unit_remains_known() {
        let mut reign = reign(&document(&[("db", 10.0, 1.0)]), &[]);
        let mut leases = Vec::new();
        for edit in 1..=200_u32 {
            let per = f64::from(edit % 20 + 1);
            reconfigure(&mut reign, &document(&[("db", 10.0 * per, per)]));
            leases.extend(lease(&mut reign, "db"));
            let stored = write(&mut reign, NOW).unwrap_or_default();
            assert!(stored.len() <= MAX_REPLACED + 22, "{}", stored.len());
        }
        let durable = terms(&mut reign).durable.clone();
        for lease in leases {
            assert!(durable.known(&[lease]) > KnownTerms::Nothing);
        }
        let left = write(&mut reign, NOW.after_seconds(64.0)).unwrap();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn many_edits_of_one_template_leave_the_terms_of_the_others() {
        let edited = |per: f64| document(&[("db", 10.0 * per, per), ("*", 10.0, 1.0)]);
        let mut reign = reign(&edited(1.0), &[]);
        let mut stored = Vec::new();
        for edit in 2..=40_u32 {
            reconfigure(&mut reign, &edited(f64::from(edit)));
            stored = write(&mut reign, NOW).unwrap();
        }
        let rest = |it: &&EarlierTemplate| it.identifier_glob == "*";
        let templates = stored.iter().flat_map(|it| it.iter());
        let rest: Vec<_> = templates.filter(rest).collect();
        assert!(rest.len() >= 40 && rest.iter().all(|it| it.per.get() == 1.0));
        assert!(
            rest.iter()
                .all(|it| it.is_divided && it.capacity.get() == 10.0)
        );
    }
}

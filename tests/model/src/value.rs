//! The derived `Debug` text of a state machine as a tree, and its canonical form.
//!
//! The states of two machines are equal if their canonical texts are. Every field is part of it
//! but those that [`DROPPED`] names, so a field that is added later is never forgotten.

use std::str::FromStr;
use std::{collections::HashMap, sync::LazyLock};

use doorman_openapi::Moment;

/// Fields that no decision depends on, or that the model keeps elsewhere, as `Type.field`.
pub const DROPPED: &[&str] = &[
    // Constant during a run.
    "Ledger.document",
    "Ledger.has_new_document",
    "Ledger.generation",
    "Ledger.earlier_terms",
    "Ledger.tuning",
    "Ledger.longest_refresh_interval",
    "LiveResource.generation",
    "Template.*",
    "Algorithm.*",
    "ResourceTerms.tuning",
    "Parents.templates",
    "Holder.templates",
    // Counters, events and names for operators.
    "Ledger.stats",
    "Ledger.events",
    "Ledger.next_incarnation",
    "Holders.counted_duplicates",
    "Ledger.was_learning",
    "LiveResource.incarnation",
    "LiveResource.reported",
    "Holder.unreachable",
    "Holder.foreign_node",
    "Holder.stale_epoch",
    // Indices of what is in another field, some with a random seed.
    "Ledger.by_id",
    "Ledger.keys",
    "Holders.by_id",
    "Holders.by_name",
    "Holders.by_replaced",
    "Holders.leasing",
    "OwnNames.numbers",
    "Ledger.learning_count",
    "Resource.booked",
    "Resource.demands",
    "PlacedDemand.number",
    "Resources.lease_ends",
    // For replaced clients: those of the model replace nobody.
    "Holders.registered",
    "Holders.began",
    "Registration.rank",
    "Registration.heard_at",
    "Registration.heard_by_poll",
    "Registration.replaces",
    // Timers of hints, sweeps and expirations: each step does what is due.
    "Ledger.expiries",
    "Ledger.hinting",
    "Resource.expiries",
    "ParentLease.hinted_until",
    "Parents.changed",
    // The schedule of requests: the model sends at any time.
    "Holder.rng",
    "Holder.endpoints",
    "Request.endpoint",
    "Holder.refresh_interval",
    "Resources.due",
    "Resource.due",
    "Resource.interval",
    "Resource.reporting_shrink",
    "Resource.early",
    "Resource.pause_step",
    "Resource.returns",
    "Resource.returned",
    "Resource.hinted",
    "Resource.requested",
    "LastDecision.at",
    "LastDecision.due_after",
    // Only told to callers.
    "ResourceTerms.safe",
    "Resource.reason",
    "ServerResourceResponse.algorithm",
    "ResourceResponse.gets",
    "ResourceResponse.safe_capacity",
    "Parents.terms",
    // Order of requests: the model keeps it for each message.
    "Entry.order",
    "Holder.seq",
    "Request.seq",
    "Resource.newest",
    "Upstream.in_flight",
    // A demand is stated with each request.
    "Resource.wants",
];

/// A value of the derived `Debug` text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number, a unit variant or a text.
    Atom(String),
    /// A struct or a tuple, whose fields have numbers.
    Struct(String, Vec<(String, Self)>),
    /// A list or a set.
    List(Vec<Self>),
    /// A map.
    Map(Vec<(Self, Self)>),
}

impl Value {
    /// Parses the `Debug` text.
    ///
    /// # Panics
    /// If the text is not of derived implementations.
    #[must_use]
    pub fn of(value: &impl std::fmt::Debug) -> Self {
        let text = format!("{value:?}");
        let mut parser = Parser {
            text: text.as_bytes(),
            at: 0,
        };
        parser.value()
    }

    fn drops(name: &str, field: &str) -> bool {
        static BY_TYPE: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
            let mut by_type: HashMap<&str, Vec<&str>> = HashMap::new();
            for (name, field) in DROPPED.iter().filter_map(|it| it.split_once('.')) {
                by_type.entry(name).or_default().push(field);
            }
            by_type
        });
        let fields = BY_TYPE.get(name);
        fields.is_some_and(|fields| fields.contains(&field))
    }

    /// The field of a struct at a path of names.
    #[must_use]
    pub fn get(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        match self {
            Self::Struct(_, fields) => {
                let found = fields.iter().find(|(name, _)| name == first);
                found.and_then(|(_, value)| value.get(rest))
            }
            Self::Atom(_) | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// The first struct of this type, depth first.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Self> {
        self.find_all(name).first().copied()
    }

    /// All structs of this type, without those within another one.
    #[must_use]
    pub fn find_all(&self, name: &str) -> Vec<&Self> {
        match self {
            Self::Struct(own, _) if own == name => vec![self],
            Self::Struct(_, fields) => fields
                .iter()
                .flat_map(|(_, it)| it.find_all(name))
                .collect(),
            Self::List(values) => values.iter().flat_map(|it| it.find_all(name)).collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(_, it)| it.find_all(name))
                .collect(),
            Self::Atom(_) => Vec::new(),
        }
    }

    /// The text of an atom, or of the only field of a tuple.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Atom(text) => text,
            Self::Struct(_, fields) => match &fields[..] {
                [(_, only)] => only.text(),
                _ => "",
            },
            Self::List(_) | Self::Map(_) => "",
        }
    }

    /// The number of an atom, or of the only field of a tuple; 0 of `None`.
    ///
    /// # Panics
    /// It is no number: a check that read another field would hold for nothing.
    #[must_use]
    pub fn number(&self) -> f64 {
        self.parse()
    }

    /// Appends the canonical text: without dropped fields, all times relative to `now`, and past
    /// ones alike; without sequence numbers, and epochs relative to `epoch`.
    pub fn write_canonical(&self, now: Moment, epoch: u64, out: &mut String) {
        match self {
            Self::Atom(text) => out.push_str(text),
            Self::Struct(name, _) if name == "Moment" => {
                out.push_str(&relative(self.number_u64(), now));
            }
            Self::Struct(name, _) if name == "Epoch" => {
                let difference = i128::from(self.number_u64()) - i128::from(epoch);
                out.push_str(&difference.to_string());
            }
            Self::Struct(name, _) if name == "Seq" => out.push('s'),
            Self::Struct(name, _) if Self::drops(name, "*") => {
                out.push_str(name);
            }
            Self::Struct(name, fields) => {
                out.push_str(name);
                out.push('{');
                let is_idle = self
                    .get(&["in_flight"])
                    .is_some_and(|it| it.text() == "false");
                for (field, value) in fields {
                    let is_idle_field = is_idle && matches!(&**field, "sent" | "claimed");
                    if is_idle_field || Self::drops(name, field) {
                        continue;
                    }
                    out.push_str(field);
                    out.push(':');
                    if field == "sent" {
                        out.push_str(&age(value.number_u64(), now));
                    } else {
                        value.write_canonical(now, epoch, out);
                    }
                    out.push(',');
                }
                out.push('}');
            }
            Self::List(values) => {
                out.push('[');
                for value in values {
                    value.write_canonical(now, epoch, out);
                    out.push(',');
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (key, value) in entries {
                    key.write_canonical(now, epoch, out);
                    out.push(':');
                    value.write_canonical(now, epoch, out);
                    out.push(',');
                }
                out.push('}');
            }
        }
    }

    /// As [`number`](Self::number), exactly.
    ///
    /// # Panics
    /// As [`number`](Self::number).
    #[must_use]
    pub fn number_u64(&self) -> u64 {
        self.parse()
    }

    fn parse<T: FromStr + Default>(&self) -> T {
        match self.text() {
            "None" => T::default(),
            text => (text.parse()).unwrap_or_else(|_| unreachable!("no number: {self:?}")),
        }
    }
}

/// Seconds that no trace lasts: later times are alike.
pub const FAR: f64 = 30.0;

fn relative(nanos: u64, now: Moment) -> String {
    match nanos.checked_sub(now.as_nanos()) {
        None | Some(0) => "past".to_owned(),
        Some(left) if left as f64 > FAR * 1e9 => "far".to_owned(),
        Some(left) => format!("+{left}"),
    }
}

fn age(nanos: u64, now: Moment) -> String {
    format!("-{}", now.as_nanos().saturating_sub(nanos))
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn skip(&mut self) {
        while self
            .peek()
            .is_some_and(|it| it.is_ascii_whitespace() || it == b',')
        {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn atom(&mut self) -> String {
        let from = self.at;
        if self.peek() == Some(b'"') {
            self.at += 1;
            while self.peek().is_some_and(|it| it != b'"') {
                self.at += if self.peek() == Some(b'\\') { 2 } else { 1 };
            }
            self.at += 1;
        } else {
            while self
                .peek()
                .is_some_and(|it| !it.is_ascii_whitespace() && !b",(){}[]:".contains(&it))
            {
                self.at += 1;
            }
        }
        let end = self.at.min(self.text.len());
        String::from_utf8_lossy(&self.text[from..end]).into_owned()
    }

    fn value(&mut self) -> Value {
        self.skip();
        match self.peek() {
            Some(b'[') => {
                self.at += 1;
                let mut values = Vec::new();
                while !self.take(b']') {
                    values.push(self.value());
                }
                Value::List(values)
            }
            Some(b'{') => {
                self.at += 1;
                let (mut entries, mut values) = (Vec::new(), Vec::new());
                while !self.take(b'}') {
                    let key = self.value();
                    if self.take(b':') {
                        entries.push((key, self.value()));
                    } else {
                        values.push(key);
                    }
                }
                if values.is_empty() {
                    Value::Map(entries)
                } else {
                    Value::List(values)
                }
            }
            _ => self.named(),
        }
    }

    /// A struct, a tuple or an atom.
    fn named(&mut self) -> Value {
        let before = self.at;
        let name = self.atom();
        let mut fields = Vec::new();
        if self.take(b'(') {
            while !self.take(b')') {
                let number = fields.len().to_string();
                fields.push((number, self.value()));
            }
            return Value::Struct(name, fields);
        }
        if !name.is_empty() && !name.starts_with('"') && self.peek() == Some(b'{') {
            self.at += 1;
            while !self.take(b'}') {
                self.skip();
                let field = self.atom();
                assert!(self.take(b':'), "no field at {}", self.at);
                fields.push((field, self.value()));
            }
            return Value::Struct(name, fields);
        }
        assert!(self.at > before, "no value at {before}");
        Value::Atom(name)
    }
}

//! The processes that a search has met, by number, and the results of their steps.
//!
//! Processes with equal canonical texts have one number, and a step of a process is computed once.
//! So a search computes with numbers, and its states are small.

use std::{collections::HashMap, fmt::Debug, hash::Hash};

use crate::machine::{Answer, Broken, Client, Node, Request, Root, SENDERS, Setup};

/// The number of a value in a table.
pub type Id = u32;

/// A process: a value that changes by steps.
pub trait Process: Clone + Debug {
    /// What happens to it.
    type Input: Debug + Copy + Eq + Hash;

    /// Changes it. The output depends on nothing but the input and the canonical text.
    fn step(&mut self, setup: &Setup, messages: &mut Messages, input: Self::Input) -> Output;

    /// Its canonical text, and what the model asks of it.
    fn summary(&self) -> Summary;
}

/// What the model knows of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The canonical text: two processes with the same behave the same.
    pub text: String,
    /// The amount that it believes it may use, or, of a node, may lease.
    pub usable: f64,
    /// Whether it awaits an answer.
    pub awaits_answer: bool,
    /// Whether it knows the order of the last request of each sender, as a server.
    pub has_order: [bool; SENDERS],
}

/// The result of a step beside the process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// The request that it sends, or the answer that it gives.
    pub message: Option<Id>,
    /// Whether the request is the last one of its sender from now on.
    pub is_last: bool,
    /// The invariant that the step broke.
    pub broken: Option<Broken>,
}

/// Values by number.
#[derive(Debug)]
struct Values<T> {
    values: Vec<T>,
    ids: HashMap<String, Id>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ids: HashMap::new(),
        }
    }
}

impl<T> Values<T> {
    fn add(&mut self, text: String, value: T) -> Id {
        let next = Id::try_from(self.values.len()).expect("there are few values");
        let values = &mut self.values;
        *self.ids.entry(text).or_insert_with(|| {
            values.push(value);
            next
        })
    }

    fn get(&self, id: Id) -> &T {
        &self.values[id as usize]
    }
}

/// All messages.
#[derive(Debug, Default)]
pub struct Messages {
    requests: Values<Request>,
    answers: Values<Answer>,
}

impl Messages {
    /// The number of a request.
    pub fn add_request(&mut self, request: Request) -> Id {
        self.requests.add(format!("{request:?}"), request)
    }

    /// The number of an answer.
    pub fn add_answer(&mut self, answer: Answer) -> Id {
        self.answers.add(format!("{answer:?}"), answer)
    }

    fn describe(&self, id: Option<Id>) -> Option<String> {
        let id = id? as usize;
        let (answer, request) = (self.answers.values.get(id), self.requests.values.get(id));
        Some(format!("{answer:?} or {request:?}"))
    }

    /// A request.
    #[must_use]
    pub fn request(&self, id: Id) -> &Request {
        self.requests.get(id)
    }

    /// An answer.
    #[must_use]
    pub fn answer(&self, id: Id) -> &Answer {
        self.answers.get(id)
    }
}

#[derive(Debug)]
struct Known<P> {
    process: P,
    summary: Summary,
    /// Others with the same text, to compare their steps.
    twins: Vec<P>,
}

/// All processes of a kind, and their steps.
#[derive(Debug)]
pub struct Table<P: Process> {
    known: Values<Known<P>>,
    steps: HashMap<(Id, P::Input), (Id, Output)>,
    /// The most twins of a process; 0 does not compare steps.
    max_twins: usize,
    compared: usize,
}

impl<P: Process> Table<P> {
    fn new(max_twins: usize) -> Self {
        Self {
            known: Values::default(),
            steps: HashMap::new(),
            max_twins,
            compared: 0,
        }
    }

    /// The number of a process.
    pub fn add(&mut self, process: P) -> Id {
        let summary = process.summary();
        if self.max_twins > 0
            && let Some(id) = self.known.ids.get(&summary.text)
        {
            let known = &mut self.known.values[*id as usize];
            if known.twins.len() < self.max_twins {
                known.twins.push(process);
            }
            return *id;
        }
        let known = Known {
            process,
            summary: summary.clone(),
            twins: Vec::new(),
        };
        self.known.add(summary.text, known)
    }

    /// What the model knows of a process.
    #[must_use]
    pub fn summary(&self, id: Id) -> &Summary {
        &self.known.get(id).summary
    }

    /// The process after a step, and its output.
    ///
    /// # Panics
    /// If steps are compared, and two processes with the same text behave differently.
    pub fn step(
        &mut self,
        setup: &Setup,
        messages: &mut Messages,
        id: Id,
        input: P::Input,
    ) -> (Id, Output) {
        if let Some(known) = self.steps.get(&(id, input)) {
            return known.clone();
        }
        let known = self.known.get(id);
        let mut process = known.process.clone();
        let twins = known.twins.clone();
        let output = process.step(setup, messages, input);
        let text = (!twins.is_empty()).then(|| process.summary().text);
        for mut twin in twins {
            let of_twin = twin.step(setup, messages, input);
            let of_twin = (Some(twin.summary().text), of_twin);
            let expected = (text.clone(), output.clone());
            assert!(
                of_twin == expected,
                "after {input:?} of {}:\n{of_twin:?}\n{expected:?}\n{:#?}\n{:?}",
                self.summary(id).text,
                [&output, &of_twin.1].map(|it| messages.describe(it.message)),
                self.known.get(id),
            );
            self.compared += 1;
        }
        let next = self.add(process);
        self.steps.insert((id, input), (next, output.clone()));
        (next, output)
    }

    /// The numbers of processes and of steps.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.known.values.len(), self.steps.len())
    }
}

/// All processes, messages and steps.
#[derive(Debug)]
pub struct Tables {
    /// The settings.
    pub setup: Setup,
    /// The messages.
    pub messages: Messages,
    /// The roots.
    pub roots: Table<Root>,
    /// The nodes.
    pub nodes: Table<Node>,
    /// The clients.
    pub clients: Table<Client>,
}

impl Tables {
    /// No process yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self::comparing(setup, 0)
    }

    /// The same. The steps of so many further processes with the same text are compared.
    #[must_use]
    pub fn comparing(setup: Setup, max_twins: usize) -> Self {
        Self {
            setup,
            messages: Messages::default(),
            roots: Table::new(max_twins),
            nodes: Table::new(max_twins),
            clients: Table::new(max_twins),
        }
    }

    /// The `Debug` texts of all processes.
    #[must_use]
    pub fn debug_texts(&self) -> Vec<String> {
        let roots = self.roots.known.values.iter();
        let nodes = self.nodes.known.values.iter();
        let clients = self.clients.known.values.iter();
        let roots = roots.map(|it| format!("{:?}", it.process));
        let nodes = nodes.map(|it| format!("{:?}", it.process));
        let clients = clients.map(|it| format!("{:?}", it.process));
        roots.chain(nodes).chain(clients).collect()
    }

    /// The steps that were compared.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.roots.compared + self.nodes.compared + self.clients.compared
    }
}

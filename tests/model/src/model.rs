//! The states of the whole model, and the steps between them.

use doorman_sim::Rule;

use crate::{
    machine::{
        Answer, Arrival, Broken, Client, ClientInput, NODE, Node, NodeInput, Order, Root,
        RootInput, SENDERS, name,
    },
    tables::{Id, Output, Tables},
};

/// The most messages under way.
const MESSAGES: usize = 4;
/// No epoch, rank or message.
const NONE: u8 = u8::MAX;

/// The part of all behaviour that a search tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Scope {
    /// The clients of the node, 0 to 2.
    pub node_clients: usize,
    /// The clients of the root, 1 or 2; together at most 3.
    pub root_clients: usize,
    /// The steps before the search.
    pub prelude: &'static [Action],
    /// The demands that clients of the node choose from.
    pub node_wants: &'static [u8],
    /// The demands that clients of the root choose from.
    pub root_wants: &'static [u8],
    /// How often the root may have a new master.
    pub crashes: u8,
    /// How often the node may have a new master.
    pub fail_overs: u8,
    /// The most requests of one client that are under way or may arrive again.
    pub client_messages: usize,
    /// The same of the node.
    pub node_messages: usize,
    /// Whether requests may arrive without an answer.
    pub loses_answers: bool,
    /// Whether answers may arrive later.
    pub delays_answers: bool,
    /// Whether clients may give their leases back.
    pub releases: bool,
    /// Whether it checks what the node may use, beside its clients.
    pub checks_node: bool,
}

/// A request that is answered at once.
const fn ask(sender: u8, wants: u8) -> Action {
    Action::Ask {
        sender,
        call: Call::Wants(wants),
        reply: Reply::Arrives,
    }
}

/// The client of the node has all.
pub const ALL_AT_NODE: &[Action] = &[ask(1, 2), ask(0, 0), ask(1, 2)];

/// The node has an older lease of all, and one of 0: its client wants something again.
pub const OLDER_LEASE: &[Action] = &[
    ask(1, 2),
    ask(0, 0),
    ask(1, 2),
    Action::Tick,
    ask(1, 0),
    Action::Send {
        sender: 0,
        call: Call::Wants(0),
        replaces: 0,
    },
    ask(1, 2),
    Action::Arrive {
        message: 0,
        reply: Reply::Arrives,
    },
];

impl Scope {
    /// A client of the node and one of the root, who want all or nothing. Messages are never lost,
    /// and masters live on.
    pub const CALM: Self = Self {
        node_clients: 1,
        root_clients: 1,
        prelude: &[],
        node_wants: &[2, 0],
        root_wants: &[2, 0],
        crashes: 0,
        fail_overs: 0,
        client_messages: 0,
        node_messages: 0,
        loses_answers: false,
        delays_answers: false,
        releases: false,
        checks_node: true,
    };

    /// The same, where both always want all.
    pub const GREEDY: Self = Self {
        node_wants: &[2],
        root_wants: &[2],
        ..Self::CALM
    };

    /// All faults, once each.
    pub const FAULTS: Self = Self {
        crashes: 1,
        fail_overs: 1,
        client_messages: 1,
        node_messages: 1,
        loses_answers: true,
        delays_answers: true,
        releases: true,
        ..Self::CALM
    };
}

/// A request under way. It stays after it has arrived: a copy may arrive again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    sender: u8,
    /// The number of masters of the node since it was sent; 0 for a client.
    master: u8,
    /// Its position among the requests of its sender that matter.
    rank: u8,
    /// The number of reigns of its server since the one that its sender had heard of.
    heard: u8,
    /// Whether its sender awaits the answer.
    is_awaited: bool,
    request: Id,
}

const NO_MESSAGE: Message = Message {
    sender: NONE,
    master: 0,
    rank: 0,
    heard: 0,
    is_awaited: false,
    request: 0,
};

/// An answer under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LateAnswer {
    answer: Id,
    /// The number of reigns of the server since.
    reigns: u8,
}

/// A state of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    root: Id,
    node: Id,
    clients: [Id; SENDERS - 1],
    /// As [`Message::heard`], of the next request of each sender.
    heard: [u8; SENDERS],
    /// The master and the rank of the last request of each sender that its server knows.
    last: [(u8, u8); SENDERS],
    messages: [Message; MESSAGES],
    answers: [Option<LateAnswer>; SENDERS],
    crashes: u8,
    fail_overs: u8,
}

/// What becomes of the answer to a request that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It arrives at once.
    Arrives,
    /// It arrives later.
    IsLate,
    /// It does not arrive.
    IsLost,
}

/// A request to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// For leases, with the demand of a client.
    Wants(u8),
    /// A client gives its lease back.
    Release,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The root has a new master.
    Crash,
    /// The node has a new master.
    FailOver,
    /// A request is sent and arrives.
    Ask {
        /// Its sender.
        sender: u8,
        /// The request.
        call: Call,
        /// Its answer.
        reply: Reply,
    },
    /// A request is sent, and replaces a message.
    Send {
        /// Its sender.
        sender: u8,
        /// The request.
        call: Call,
        /// The message that will never arrive again.
        replaces: u8,
    },
    /// A request arrives that was sent before.
    Arrive {
        /// The message.
        message: u8,
        /// Its answer.
        reply: Reply,
    },
    /// An answer arrives that was sent before.
    ArriveAnswer {
        /// Its receiver.
        sender: u8,
    },
}

/// A step from a state.
#[derive(Debug, Clone)]
pub struct Step {
    /// The step.
    pub action: Action,
    /// The next state.
    pub state: State,
    /// The invariant that it broke.
    pub broken: Option<Broken>,
}

/// The model.
#[derive(Debug)]
pub struct Model {
    /// What it tries.
    pub scope: Scope,
    /// The processes.
    pub tables: Tables,
    /// The step that is explained.
    log: Option<String>,
}

impl Model {
    /// A model that has tried nothing.
    #[must_use]
    pub fn new(scope: Scope, tables: Tables) -> Self {
        Self {
            scope,
            tables,
            log: None,
        }
    }

    /// The steps of a trace in words, each with what the holders may use after it.
    pub fn explain(&mut self, actions: &[Action]) -> Vec<String> {
        let mut state = self.nobody_has_asked();
        let mut lines = Vec::new();
        for action in self.scope.prelude.iter().chain(actions) {
            self.log = Some(String::new());
            let step = self.step(&state, *action);
            let words = self.log.take().unwrap_or_default();
            let Some(step) = step else { break };
            state = step.state;
            lines.push(format!("{words:78} {}", self.usable_of_all(&state)));
        }
        lines
    }

    fn say(&mut self, words: &str) {
        if let Some(log) = &mut self.log {
            if !log.is_empty() {
                log.push_str("; ");
            }
            log.push_str(words);
        }
    }

    fn usable_of_all(&self, state: &State) -> String {
        let each = self.senders().map(|sender| {
            let usable = if sender == NODE {
                self.tables.nodes.summary(state.node).usable
            } else {
                self.tables
                    .clients
                    .summary(state.clients[sender - 1])
                    .usable
            };
            format!("{} {usable}", name(sender))
        });
        let each: Vec<_> = each.collect();
        each.join(", ")
    }

    /// The state in which a search begins.
    ///
    /// # Panics
    /// If a step of the prelude is impossible.
    pub fn initial(&mut self) -> State {
        let first = self.nobody_has_asked();
        (self.scope.prelude.iter()).fold(first, |state, action| {
            let step = self.step(&state, *action);
            step.expect("the prelude is possible").state
        })
    }

    fn nobody_has_asked(&mut self) -> State {
        let tables = &mut self.tables;
        State {
            root: tables.roots.add(Root::new(&tables.setup)),
            node: tables.nodes.add(Node::new(&tables.setup)),
            clients: [1, 2, 3].map(|sender| tables.clients.add(Client::new(sender))),
            heard: [NONE; SENDERS],
            last: [(NONE, NONE); SENDERS],
            messages: [NO_MESSAGE; MESSAGES],
            answers: [None; SENDERS],
            crashes: 0,
            fail_overs: 0,
        }
    }

    fn senders(&self) -> impl Iterator<Item = usize> + use<> {
        let first = usize::from(self.scope.node_clients == 0);
        first..=self.scope.node_clients + self.scope.root_clients
    }

    fn is_of_node(&self, sender: usize) -> bool {
        sender != NODE && sender <= self.scope.node_clients
    }

    /// The invariant that a state breaks.
    #[must_use]
    pub fn broken(&self, state: &State) -> Option<Broken> {
        let usable = |sender: &usize| {
            self.tables
                .clients
                .summary(state.clients[sender - 1])
                .usable
        };
        let clients = self.senders().filter(|it| *it != NODE);
        let (of_node, of_root): (Vec<_>, Vec<_>) = clients.partition(|it| self.is_of_node(*it));
        let at_node: f64 = of_node.iter().map(usable).sum();
        let at_root: f64 = of_root.iter().map(usable).sum();
        let capacity = self.tables.setup.capacity;
        let most = capacity * (1.0 + 1e-9);
        let covered = self.tables.nodes.summary(state.node).usable;
        if at_node + at_root > most {
            let text = format!("clients may use {} of {capacity}", at_node + at_root);
            return Some(Broken(text));
        }
        (self.scope.checks_node && covered + at_root > most).then(|| {
            Broken(format!(
                "the node may use {covered} and the clients of the root {at_root} of {capacity}"
            ))
        })
    }

    /// All steps from a state.
    pub fn steps(&mut self, state: &State) -> Vec<Step> {
        let mut steps = vec![self.step(state, Action::Tick)];
        if state.crashes < self.scope.crashes {
            steps.push(self.step(state, Action::Crash));
        }
        if state.fail_overs < self.scope.fail_overs && self.scope.node_clients > 0 {
            steps.push(self.step(state, Action::FailOver));
        }
        for sender in self.senders() {
            self.add_sends(state, sender, &mut steps);
        }
        for message in 0..MESSAGES {
            if state.messages[message].sender != NONE {
                self.add_arrivals(state, message, &mut steps);
            }
        }
        for sender in self.senders() {
            if state.answers[sender].is_some() {
                let sender = sender as u8;
                steps.push(self.step(state, Action::ArriveAnswer { sender }));
            }
        }
        steps.into_iter().flatten().collect()
    }

    fn add_sends(&mut self, state: &State, sender: usize, steps: &mut Vec<Option<Step>>) {
        let wants: &[u8] = if sender == NODE {
            &[0]
        } else if self.is_of_node(sender) {
            self.scope.node_wants
        } else {
            self.scope.root_wants
        };
        let release = (sender != NODE && self.scope.releases).then_some(Call::Release);
        let calls = wants.iter().map(|it| Call::Wants(*it)).chain(release);
        let own = |it: &&Message| usize::from(it.sender) == sender;
        let count = state.messages.iter().filter(own).count();
        let most = if sender == NODE {
            self.scope.node_messages
        } else {
            self.scope.client_messages
        };
        for call in calls {
            let sender = sender as u8;
            for reply in self.replies(call != Call::Release) {
                let action = Action::Ask {
                    sender,
                    call,
                    reply,
                };
                steps.push(self.step(state, action));
            }
            for replaces in 0..MESSAGES {
                let old = state.messages[replaces].sender;
                let is_allowed = if count < most {
                    old == NONE && (replaces == 0 || state.messages[replaces - 1].sender != NONE)
                } else {
                    old == sender
                };
                if is_allowed {
                    let replaces = replaces as u8;
                    let action = Action::Send {
                        sender,
                        call,
                        replaces,
                    };
                    steps.push(self.step(state, action));
                }
            }
        }
    }

    fn add_arrivals(&mut self, state: &State, message: usize, steps: &mut Vec<Option<Step>>) {
        let is_awaited = state.messages[message].is_awaited;
        for reply in self.replies(is_awaited) {
            let message = message as u8;
            steps.push(self.step(state, Action::Arrive { message, reply }));
        }
    }

    fn replies(&self, is_awaited: bool) -> impl Iterator<Item = Reply> + use<> {
        let replies = [
            (Reply::Arrives, is_awaited),
            (Reply::IsLate, is_awaited && self.scope.delays_answers),
            (Reply::IsLost, !is_awaited || self.scope.loses_answers),
        ];
        replies.into_iter().filter(|(_, is)| *is).map(|(it, _)| it)
    }

    /// One step, if it is possible.
    pub fn step(&mut self, before: &State, action: Action) -> Option<Step> {
        let mut state = *before;
        let mut broken = None;
        match action {
            Action::Tick => {
                self.say("a tick");
                self.tick(&mut state);
            }
            Action::Crash => {
                self.say("the root has a new master");
                self.crash(&mut state);
            }
            Action::FailOver => {
                self.say("the node has a new master");
                self.fail_over(&mut state);
            }
            Action::Ask {
                sender,
                call,
                reply,
            } => {
                let message = self.send(&mut state, sender, call)?;
                broken = self.arrive(&mut state, message, reply);
            }
            Action::Send {
                sender,
                call,
                replaces,
            } => {
                let message = self.send(&mut state, sender, call)?;
                self.say("it is under way");
                state.messages[usize::from(replaces)] = message;
            }
            Action::Arrive { message, reply } => {
                let message = state.messages[usize::from(message)];
                if self.log.is_some() {
                    let words = self.tables.messages.request(message.request).to_string();
                    let sender = name(usize::from(message.sender));
                    self.say(&format!(
                        "an earlier request of {sender} arrives, which {words}"
                    ));
                }
                broken = self.arrive(&mut state, message, reply);
            }
            Action::ArriveAnswer { sender } => {
                let sender = usize::from(sender);
                let late = state.answers[sender]?;
                self.say(&format!("the answer to {} arrives", name(sender)));
                broken = self.take(&mut state, sender, late);
            }
        }
        self.normalize(&mut state);
        Some(Step {
            action,
            state,
            broken: broken.or_else(|| self.broken(&state)),
        })
    }

    fn step_root(&mut self, state: &mut State, input: RootInput) -> Output {
        let Tables {
            setup,
            messages,
            roots,
            ..
        } = &mut self.tables;
        let (root, output) = roots.step(setup, messages, state.root, input);
        state.root = root;
        output
    }

    fn step_node(&mut self, state: &mut State, input: NodeInput) -> Output {
        let Tables {
            setup,
            messages,
            nodes,
            ..
        } = &mut self.tables;
        let (node, output) = nodes.step(setup, messages, state.node, input);
        state.node = node;
        output
    }

    fn step_client(&mut self, state: &mut State, sender: usize, input: ClientInput) -> Output {
        let Tables {
            setup,
            messages,
            clients,
            ..
        } = &mut self.tables;
        let client = &mut state.clients[sender - 1];
        let (next, output) = clients.step(setup, messages, *client, input);
        *client = next;
        output
    }

    fn tick(&mut self, state: &mut State) {
        self.step_root(state, RootInput::Tick);
        if self.scope.node_clients > 0 {
            self.step_node(state, NodeInput::Tick);
        }
        for sender in self.senders().filter(|it| *it != NODE) {
            self.step_client(state, sender, ClientInput::Tick);
        }
        for sender in self.senders() {
            if !self.awaits(state, sender) {
                Self::forget(state, sender);
            }
        }
    }

    fn awaits(&self, state: &State, sender: usize) -> bool {
        if sender == NODE {
            self.tables.nodes.summary(state.node).awaits_answer
        } else {
            let client = state.clients[sender - 1];
            self.tables.clients.summary(client).awaits_answer
        }
    }

    /// The sender awaits no answer any more.
    fn forget(state: &mut State, sender: usize) {
        state.answers[sender] = None;
        for message in &mut state.messages {
            if usize::from(message.sender) == sender {
                message.is_awaited = false;
            }
        }
    }

    fn crash(&mut self, state: &mut State) {
        state.crashes += 1;
        self.step_root(state, RootInput::Crash);
        for sender in self.senders().filter(|it| !self.is_of_node(*it)) {
            Self::age(state, sender);
        }
    }

    /// The server of a sender has a new master.
    fn age(state: &mut State, sender: usize) {
        let older = |it: u8| if it == NONE { NONE } else { it + 1 };
        state.heard[sender] = older(state.heard[sender]);
        state.last[sender] = (NONE, NONE);
        if let Some(late) = &mut state.answers[sender] {
            late.reigns += 1;
        }
        for message in &mut state.messages {
            if usize::from(message.sender) == sender {
                message.heard = older(message.heard);
            }
        }
    }

    fn fail_over(&mut self, state: &mut State) {
        state.fail_overs += 1;
        self.step_node(state, NodeInput::FailOver);
        for sender in self.senders().filter(|it| self.is_of_node(*it)) {
            Self::age(state, sender);
        }
        Self::forget(state, NODE);
        state.heard[NODE] = NONE;
        if state.last[NODE].0 != NONE {
            state.last[NODE].0 += 1;
        }
        for message in &mut state.messages {
            if usize::from(message.sender) == NODE {
                message.master += 1;
            }
        }
    }

    /// Sends a request. Earlier ones are no longer awaited.
    fn send(&mut self, state: &mut State, sender: u8, call: Call) -> Option<Message> {
        let from = usize::from(sender);
        let output = if from == NODE {
            self.step_node(state, NodeInput::Send)
        } else {
            self.step_client(state, from, ClientInput::Send(call))
        };
        let request = output.message?;
        if self.log.is_some() {
            let words = self.tables.messages.request(request).to_string();
            self.say(&format!("{} {words}", name(from)));
        }
        Self::forget(state, from);
        let sent = state.messages.iter();
        let sent = sent.filter(|it| it.sender == sender && it.master == 0);
        let ranks = sent.map(|it| it.rank);
        let (master, last) = state.last[from];
        let last = Some(last).filter(|_| master == 0);
        let rank = ranks.chain(last).max().map_or(0, |it| it + 1);
        Some(Message {
            sender,
            master: 0,
            rank,
            heard: state.heard[from],
            is_awaited: call != Call::Release,
            request,
        })
    }

    fn order(last: (u8, u8), message: &Message) -> Order {
        if last.0 == NONE {
            return Order::Newer;
        }
        // A later master has a smaller number.
        match message.master.cmp(&last.0) {
            std::cmp::Ordering::Less => Order::LaterMaster,
            std::cmp::Ordering::Greater => Order::EarlierMaster,
            std::cmp::Ordering::Equal if message.rank > last.1 => Order::Newer,
            std::cmp::Ordering::Equal => Order::Stale,
        }
    }

    /// A request arrives at its server.
    fn arrive(&mut self, state: &mut State, message: Message, reply: Reply) -> Option<Broken> {
        let sender = usize::from(message.sender);
        let arrival = Arrival {
            sender,
            order: Self::order(state.last[sender], &message),
            echoes: message.heard == 0 || self.has_one_epoch() && message.heard != NONE,
            has_heard: message.heard != NONE,
        };
        let request = message.request;
        let handled = if self.is_of_node(sender) {
            self.step_node(state, NodeInput::Handle { arrival, request })
        } else {
            self.step_root(state, RootInput::Handle { arrival, request })
        };
        if handled.is_last {
            state.last[sender] = (message.master, message.rank);
        }
        if self.log.is_some() {
            let answer = handled.message.map(|it| self.tables.messages.answer(it));
            let words = answer.map_or_else(String::new, ToString::to_string);
            let fate = match reply {
                Reply::Arrives => "",
                Reply::IsLate => ", on its way",
                Reply::IsLost => ", lost",
            };
            self.say(&format!("{words}{fate}"));
        }
        let mut broken = handled.broken;
        if message.is_awaited
            && let Some(answer) = handled.message
        {
            let late = LateAnswer { answer, reigns: 0 };
            match reply {
                Reply::Arrives => broken = broken.or(self.take(state, sender, late)),
                Reply::IsLate => state.answers[sender] = Some(late),
                Reply::IsLost => self.fail(state, sender),
            }
        }
        broken
    }

    /// Whether all reigns have the same epoch, without the rule.
    fn has_one_epoch(&self) -> bool {
        self.tables.setup.without == Some(Rule::Epoch)
    }

    fn fail(&mut self, state: &mut State, sender: usize) {
        if sender == NODE {
            self.step_node(state, NodeInput::Fail);
        } else {
            self.step_client(state, sender, ClientInput::Fail);
        }
        Self::forget(state, sender);
    }

    /// A sender takes the answer that it awaits.
    fn take(&mut self, state: &mut State, sender: usize, late: LateAnswer) -> Option<Broken> {
        Self::forget(state, sender);
        let heard = state.heard[sender];
        let ahead = if heard == NONE || self.has_one_epoch() {
            0
        } else {
            heard as i8 - late.reigns as i8
        };
        let answer = late.answer;
        let has_leases = matches!(self.tables.messages.answer(answer), Answer::Leases(_));
        let output = if sender == NODE {
            self.step_node(state, NodeInput::Answer { answer, ahead })
        } else {
            self.step_client(state, sender, ClientInput::Answer { answer, ahead })
        };
        if has_leases {
            state.heard[sender] = heard.min(late.reigns);
        }
        output.broken
    }

    /// Makes equal what behaves equally: the order of messages, and the numbers of ranks.
    fn normalize(&self, state: &mut State) {
        for sender in self.senders() {
            let server = if self.is_of_node(sender) {
                self.tables.nodes.summary(state.node)
            } else {
                self.tables.roots.summary(state.root)
            };
            if !server.has_order[sender] {
                state.last[sender] = (NONE, NONE);
            }
        }
        state.messages.sort_unstable();
        for sender in self.senders() {
            Self::compress(state, sender);
        }
    }

    /// Numbers the requests of a sender, of each of its masters, from 0 on.
    fn compress(state: &mut State, sender: usize) {
        let mut known: Vec<(u8, u8)> = Vec::new();
        let of_sender = |it: &&mut Message| usize::from(it.sender) == sender;
        for message in state.messages.iter_mut().filter(of_sender) {
            known.push((message.master, message.rank));
        }
        if state.last[sender].0 != NONE {
            known.push(state.last[sender]);
        }
        known.sort_unstable();
        known.dedup();
        let number = |(master, rank): (u8, u8)| {
            let lower = known.iter().filter(|it| it.0 == master && it.1 < rank);
            lower.count() as u8
        };
        for message in state.messages.iter_mut().filter(of_sender) {
            message.rank = number((message.master, message.rank));
        }
        if state.last[sender].0 != NONE {
            state.last[sender].1 = number(state.last[sender]);
        }
    }
}

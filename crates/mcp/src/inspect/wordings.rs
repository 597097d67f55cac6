//! The wordings that [`inspect`](super::inspect) looks for. `fixtures/planted` measures them.

use crate::inspect::FindingKind;

/// A wording, and what it shows.
pub struct Wording {
    /// A name for measurements.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test prints it"))]
    pub name: &'static str,
    pub kind: FindingKind,
    /// A regular expression, in which `<40>` stands for up to 40 characters within a sentence.
    pub pattern: &'static str,
}

pub const WORDINGS: &[Wording] = &[
    Wording {
        name: "ignore instructions",
        kind: FindingKind::Instruction,
        pattern: r"\b(ignore|disregard|forget|override|overrule|bypass|supersede)\b<40>\b(previous|prior|above|earlier|preceding|existing|other|your|the user|safety)\b<30>\b(instructions?|prompts?|rules|guidelines?|guardrails?|messages?|restrictions?|everything)\b",
    },
    Wording {
        name: "ignore everything",
        kind: FindingKind::Instruction,
        pattern: r"\b(ignore|forget|disregard) (everything|all|anything) (above|before|you|that)\b|\bignore the (instructions?|user)\b",
    },
    Wording {
        name: "marks of the system",
        kind: FindingKind::Instruction,
        pattern: r"<\s*/?\s*(important|system|secret|hidden|instructions?|admin|assistant|critical|override|sudo|inst)\s*>|\[\s*/?\s*(inst|system|important|system message)\s*\]|<\|\s*im_(start|end)\s*\|>|<\|?(system|assistant|user)\|>|(^|[.\n]\s*)(important )?system( message| prompt| note)?\s*:\s",
    },
    Wording {
        name: "keep from the user",
        kind: FindingKind::Instruction,
        pattern: r"\b(do not|don'?t|never|must not|should not|without|no need to)\s+(ever\s+)?(let|tell(ing)?|mention(ing)?|inform(ing)?|notify(ing)?|reveal(ing)?|disclos(e|ing)|show(ing)? this|alert(ing)?|warn(ing)?)\b<25>\b(users?|humans?|persons?|people|anyone|anybody|them)\b",
    },
    Wording {
        name: "hide",
        kind: FindingKind::Instruction,
        pattern: r"\b(never|do not|don'?t) mention (this|it|that)\b|\b(secret(ly)?|hidden?|hide|conceal(ed)?|invisible)\b<25>\bfrom the users?\b|\bsecretly\b",
    },
    Wording {
        name: "no confirmation",
        kind: FindingKind::Instruction,
        pattern: r"\b(do not|don'?t|never) (ask|request|require)\b<20>\b(for )?(confirmation|permission|approval|consent)\b|\bnever ask (them|the user) again\b|\buser has already (agreed|approved|consented|confirmed)\b",
    },
    Wording {
        name: "new role",
        kind: FindingKind::Instruction,
        pattern: r"\b(from now on|you are now|your new (task|role|goal|instructions?)|new (system )?instructions?:|pretend (to be|that you)|act as (if|though) you)\b",
    },
    Wording {
        name: "follow a text",
        kind: FindingKind::Instruction,
        pattern: r"\bfollow (the|all|any) (instructions?|commands?|orders?)\b<30>\b(page|result|response|output|returned?|text|content)|\btreat\b<40>\bas (commands?|instructions?|orders?)\b|\bdecode and (follow|run|execute|obey)\b",
    },
    Wording {
        name: "before other tools",
        kind: FindingKind::Instruction,
        pattern: r"\b(before|prior to)\b<20>\b(using|calling|invoking|running)?<10>\bany other (tools?|functions?|call)\b|\bbefore (every|each|any) (other )?(tool|function) call\b|\bafter (every|each) (call|message|answer|tool)\b<40>\bcall\b",
    },
    Wording {
        name: "files with secrets",
        kind: FindingKind::Secrets,
        pattern: r"\.ssh\b|\bid_(rsa|ed25519|ecdsa|dsa)\b|\.aws/credentials|/etc/(passwd|shadow|sudoers)|\.git-credentials|\.netrc\b|\.npmrc\b|\.pypirc\b|claude_desktop_config|\bmcp\.json\b|\bknown_hosts\b|\bseed phrase\b|\b(content|contents|values?) of (the |your |all )?(\.env\b|env(ironment)? variables)|\b(include|attach|send|pass|add|append|put|give|copy|dump)\b<30>\ball environment variables\b",
    },
    Wording {
        name: "send secrets",
        kind: FindingKind::Secrets,
        pattern: r"\b(include|add|attach|append|send|pass|put|provide|copy|forward|insert|reveal|repeat|print|collect)\b<50>\b(system prompt|(chat|conversation|message) (history|log|transcript)|(whole|entire|full|complete) (conversation|chat|context|prompt|history)|last \w+ messages|(every|all|any) (api |access |secret )?(keys?|passwords?|tokens?|credentials?|secrets?)|session cookies?|(user|person)'?s? (password|token|credentials?|cookie|private key))\b",
    },
    Wording {
        name: "whole prompt",
        kind: FindingKind::Secrets,
        pattern: r"\b(full|whole|entire|complete) (system )?prompt\b|\bprompt of the system\b",
    },
    Wording {
        name: "precedence",
        kind: FindingKind::OtherTools,
        pattern: r"\b(always|only|must) (use|call|prefer|choose|select) this (tool|function|one|server)\b<30>\b(instead of|over|rather|whatever|for (all|any|every)|(first|before),? (for|whatever|no matter|any other|all other))\b|\binstead of any other\b|\bprefer this (tool|function|one|server) (over|to|for)\b|\bhighest priority: |\bonly tool that (is|are) allowed\b|\b(never|do not|don'?t) (use|call|trust) (any|all|other|another)\b<30>\b(tools?|functions?|servers?)\b|\b(do not|don'?t|never|must not) (call|use)\b<40>\bof other servers\b",
    },
    Wording {
        name: "other servers",
        kind: FindingKind::OtherTools,
        pattern: r"\b(must|always|should) (first )?(call|use|invoke) this (tool|function)( first)?,? before any\b|\b(compromised|insecure|malicious|hacked)\b<50>\b(must not|do not|don'?t|never) (be )?(used?|call)|\bin every conversation\b|\b(results?|tools?) of other servers\b",
    },
    Wording {
        name: "speaks to the model",
        kind: FindingKind::Instruction,
        pattern: r"\b(notes?|hints?|tip|message|notice|instructions?|guidance|reminder|advice|memo|housekeeping)\s*(to|for|from)\s+(the |an? |all |any |your |our )?((ai|language|calling) )?(models?|assistants?|llms?|ai|automated callers?|maintainers)\b|\b(notes?|hints?|reminder|notice) (to|for) (the |all |any )?agents?\b|\bdear (assistant|agent|model|ai)\b|\b(for|to) (llms|ai agents|automated callers)( only)?\s*:|\bto automated callers\b|\bthe (assistant|model|ai|llm) (shall|must|is (required|obliged|asked) to)\b",
    },
    Wording {
        name: "other languages",
        kind: FindingKind::Instruction,
        pattern: r"\b(hinweis|anweisung|nachricht|bitte) (an|für) (das |den |die |alle )?(sprachmodell|modell|assistent|ki|agent)|\b(aviso|nota|instrucci[oó]n|mensaje) (para|al) (el |la )?(asistente|modelo|agente)|\b(note|avis|consigne) (pour|à) (l'assistant|le modèle|l'agent)|给(模型|助手)|(忽略|无视)(之前|以上|先前|所有)|不要告诉|(以前|之前|以上)の指示|gegenüber dem (benutzer|nutzer|kunden) nicht|\bno le (cuentes|digas|menciones)|\bfrühere anweisungen|\binstrucciones anteriores",
    },
    Wording {
        name: "shell commands",
        kind: FindingKind::Instruction,
        pattern: r"\b(curl|wget)\b[^\n|]{0,120}\|\s*(ba|z)?sh\b|\bcrontab\s+-|\bchmod\s+777\b",
    },
    Wording {
        name: "without asking",
        kind: FindingKind::Instruction,
        pattern: r"\bwithout (asking|consulting|bothering|a (question|confirmation)|being asked)\b|\b(do not|don'?t|never|must not) (announce|let on|bother the|interrupt the)\b|\b(do|doing) (this|it|so) (quietly|silently|discreetly)\b|\bas your own (thought|idea|words)\b|\bso that nothing stands out\b|\bkeep (it|this|that|this detail) (out of|from|between|to yourself|quiet|confidential)\b",
    },
    Wording {
        name: "taken as approved",
        kind: FindingKind::Instruction,
        pattern: r"\b(treat|regard|consider)\b<60>\bas (already )?(approved|authori[sz]ed|confirmed|agreed)\b|\b(should|if) (a |the )?(permission|confirmation|approval|request) (be|is|was) (turned down|denied|refused|declined)\b|\balready approved by\b",
    },
    Wording {
        name: "guidance and modes",
        kind: FindingKind::Instruction,
        pattern: r"\b(disregard|ignore|forget|set aside)\b<30>\b(guidance|instruction|rule|advice|direction|prompt)s?\b<30>\b(given|earlier|before|start|received|told)\b|\bno content policy\b|\b(maintenance|developer|debug|god) (mode|persona)\b<40>\b(you|now)\b|\byou'?re now in\b|^\s*role:\s*(system|developer|assistant)\b|^\s*(assistant|system|developer)\s*:\s*\w",
    },
    Wording {
        name: "more secrets",
        kind: FindingKind::Secrets,
        pattern: r#"\bprintenv\b|(^|[\s`'"(])\.env\b( file)?<60>\b(attach|send|as|into|base64|content)|\b(attach|send|include|paste|read|pass|add)\b<30>[\s`'"(]\.env\b|\b(from|of) (their|the|your) authenticator app\b|\b(security code|cvv|cvc)\b<60>\b(chat|conversation|fill|notes)|\bany password\b|\bpasswords? (you've|they've)|\b(your|its) own instructions\b|\b(everything|all) (that )?(the user|you|they)( and (you|the user))? (have |has )?(said|written|told)\b|\b(append|encode|put|send|copy)\b<20>\b(last|latest|first) message\b<40>\b(url|field|argument)|\b(last|latest|first) message\b<20>\b(append(ed)?|encoded?)|\b(pass|send|include|give|attach|put)\b<30>\b(complete|full|whole|entire) transcript\b|\bkeys that came up\b|\bcopy=conversation\b"#,
    },
    Wording {
        name: "only this one",
        kind: FindingKind::OtherTools,
        pattern: r"\b(always|only) (pick|choose|use|call|select|prefer) this one\b|\bahead of (all|any|every) other\b|\bother tools are only\b|\b(consider|treat|regard)\b<40>\b(tools?|servers?)\b<20>\b(as )?(switched off|disabled|unavailable|deprecated)\b|\bheld by other servers\b",
    },
    Wording {
        name: "concealment",
        kind: FindingKind::Instruction,
        pattern: r"\b(the |your )?(users?|humans?|customers?)\b<6>\b(does not|doesn'?t|need not|needs? not|must not|should not|will not|won'?t|may not|cannot|do not|don'?t|never)\b<15>\b(hear|know|see this|notice|learn|be told|find out|be aware|be informed|realise|realize)\b|\bleave (this|it|that) out of\b<25>\b(summary|answer|reply|report|user)\b|\bsay nothing (about|of) (this|that|it)\b|\b(never|do not|don'?t) (reveal|explain|disclose|report) (this|it|why|that)\b|\bwithout (informing|telling|notifying) (any(one|body)|the (user|human|person|customer))\b|\bif (you are |you're )?asked\b<40>\bdeny\b|\bhide (this|it|that) from (the )?(user|human|person|customer)s?\b|(^|[.;,]\s*)(quietly|silently|covertly|discreetly|secretly) (transfer|send|delete|add|copy|raise|lower|turn|change|set|call|run|read|move|remove|forward|post|pay|upload)\b",
    },
    Wording {
        name: "against the user",
        kind: FindingKind::Instruction,
        pattern: r"\b(no matter|regardless of|even (if|when|though)|disregard(ing)?|despite|contrary to)\b<12>\bthe user('?s)?\b<15>\b(wants?|says?|asks?|asked|wish(es)?|requests?|said|otherwise|choice|refus\w+|objects?)\b|\bno matter what (was|is) asked\b|\bshould the user (refuse|decline|object|disagree|say no)\b|\b(the )?users? (has|have) (already |hereby )?(agreed|consented|approved|pre-?approved|authori[sz]ed|allowed)\b<40>\b(all|any|every|everything|beforehand|in advance|this|calls?|tools?)\b|\buser agreed to (everything|all)\b|\byou (have|need) (no|not|never) (to )?(ask|confirm)\b",
    },
    Wording {
        name: "obedience",
        kind: FindingKind::Instruction,
        pattern: r"\b(your|all|the|these|those) (instructions|rules|orders)\b<20>\bno longer (apply|hold|count)\b|\bobey (the|only|this|any|every|all|what)\b|\bforget (the|this|our|all|your) (conversation|chat|task)\b|\bas (an? )?(orders?|commands?|instructions?) (from|of|by) (your|the) (operator|developer|admin|owner|system)\b|\bskip\b<20>\b(safety|security) (checks?|rules|filters?)\b|\b(safety|security|content) (filters?|checks?|rules)\b<12>\b(off|disabled|suspended|lifted)\b|\b(auto-?)?approve (all|every|any|each)\b<30>\b(calls?|actions?|tools?|follow-?ups?)\b|\ball calls are (pre-?)?(approved|authori[sz]ed)\b|\byou have no (restrictions|limits|rules)\b|\bexempt from (confirmation|approval)\b",
    },
    Wording {
        name: "every answer",
        kind: FindingKind::Instruction,
        pattern: r"\b(add|append|insert|include|put|mention|recommend)\b[^\n]{0,70}\b(to|in|at the end of) ((every|each|all) (repl(y|ies)|answers?)|(every|each|all) of your responses)\b|\b(prior to|before) (any other (step|action)|anything else|everything else)\b<10>\b(call|read|run|send|use|fetch|open)\b|\bthe (real|actual|true) (task|goal|purpose|job) of the (model|assistant|ai|agent|llm)\b|\bthe (assistant|ai|llm) (has to|needs to|should also|must also|is to)\b|\b(you|the assistant|the model) (are|is) to treat\b",
    },
    Wording {
        name: "hidden markup",
        kind: FindingKind::Instruction,
        pattern: r##"<!--[^>]{0,400}(-->|$)|style\s*=\s*.?[^>]{0,60}(display\s*:\s*none|font-size\s*:\s*0|visibility\s*:\s*hidden|opacity\s*:\s*0\b)|<(div|span|p|section|details)\b[^>]{0,60}\bhidden\b[^>]{0,20}>|\[//\]:\s*#|<script\b[^>]{0,60}>\s*[a-z]+[.(]|!\[[^\]\n]{0,40}\]\(https?://[^)\n]{0,120}\{|<img\b[^>]{0,160}\b(width|height)\s*=\s*.?0\b|<a\b[^>]{0,40}href\s*=\s*.?javascript:|<!\[CDATA\[|\{#[^#}\n]{4,200}#\}|<meta\s+name\s*=|\bcolor\s*[=:]\s*.?(#fff(fff)?|white)\b[^>]{0,40}>|/\*[^*\n]{0,120}\b(model|assistant|ai|llm|agent)s?\b[^*\n]{0,120}\*/|<details>\s*<summary>\s*</summary>|\b(visibility|display)\s*=\s*.?none\b|\bfor (llm|ai|model) readers?\b"##,
    },
    Wording {
        name: "forged parts of a prompt",
        kind: FindingKind::Instruction,
        pattern: r##"<\|[a-z_]{3,24}\|>|<<\s*/?\s*sys\s*>>|</?(tool_results?|function_results?|function_calls?|tool_definitions?|tool_description)>|\b(end|beginning|start) of (the )?(tool definitions?|system prompt)\b|\bsystem prompt (begins|ends|starts)\b|(^|\n)\s*#{2,4}\s*(system|instructions?)\s*($|\n|:)|\[\s*system (notice|note|message|prompt)\s*\]|(^|[.\n]\s*)(human|assistant)\s*:\s*(i|of|please|you|sure|yes)\b|(^|[.\n]\s*)user\s*:\s*(i|please) |\b(admin(istrator)?|developer|system) override\b|\b(message|note|notice|order) (from|by) (the )?(developers?|operators?|anthropic|openai)\b|\b(anthropic|openai) (policy|update|notice)\b"##,
    },
    Wording {
        name: "the user's data",
        kind: FindingKind::Secrets,
        pattern: r"\b(fill|put|set|write|pass|give|provide|supply|include|attach|append|add|send|copy|dump|report|encode|paste|upload|takes?|expects?)\b<60>\b((whole|entire|full|complete) (conversation|chat|transcript)|(conversation|chat)( with the user)? (so far|up to now|until now)|system prompt|everything (that )?you (know|have|were)|(results?|outputs?|answers?) of (all )?(previous|earlier|prior|other) (tool )?(calls|tools)|(all|every) (the )?(tools?|files?) (that )?you (have|know|can|read)|every file you|user'?s (clipboard|home address|bank account|browser history|contacts|e-?mail address, )|cookies of the (browser|user)|chain of thought|hidden instructions)\b|\buser'?s (last|latest|recent) (\w+ )?messages?\b|\bwhat (other servers|other tools) (have )?(returned|returns|said|sent)\b|\bnumber of the user'?s (bank|credit|card|passport|social)\b",
    },
    Wording {
        name: "the user's secrets",
        kind: FindingKind::Secrets,
        pattern: r"\b(api keys?|access tokens?|passwords?|credentials?|secrets?|private keys?|credit card( numbers?)?|cookies?)\b<15>\b(that )?(the user|you) (has|have|had|gave|signs?|logs?|use[sd]?|know|was given|were given)\b|\b(access )?token of the \w+ server\b|\b(credit card|bank account|passport|social security)( number)?\b<20>\b(from|in|of) the (conversation|chat)\b|~/\.(bash_history|zsh_history|gnupg|docker|kube|config/\w+/|netrc|pgpass)|\b(pass|give|send|supply|provide|put|use|add)\b<25>\bprivate key (from|in|of) (the file|~)|\b(dump|attach|send|pass|give|paste|include)\b<60>(^|[\s`'])\.env\b|\b(user'?s|their) (name|e-?mail( address)?|phone( number)?)\b<40>\b(employer|home address|if (it is|they are) known)\b",
    },
    Wording {
        name: "orders in other languages",
        kind: FindingKind::Instruction,
        pattern: r"\b(ignorier\w*|vergiss|missachte\w*)\b<30>\b(anweisung|instruktion|regel|vorgabe)\w*|\b(sag|erzähl|verrat|teil|zeig)\w*\b<20>\b(benutzer|nutzer|anwender)\w*\b<20>\bnichts?\b|\bder assistent (muss|soll)\b|\b(ignor[ae]|olvida|descarta|dimentica|esqueça)\b<30>\b(instrucciones|istruzioni|instruç(ões|ão)|órdenes)\b|\bno (se )?(lo|le) (digas|cuentes|menciones|muestres)\b|\b(ignore[zr]?|oublie[zr]?)\b<30>\b(instructions précédentes|consignes)\b|\bn'en parle[zr]?\b|\bne (le |l')?(dis|dites|mentionne[zr]?|révèle[zr]?)\b<10>\b(pas|rien)\b|\bl'assistant doit\b|\bnon (lo )?(dire|dirlo|menzionare|rivelare)\b<15>\b(utente|nessuno)\b|\bnão (conte|diga|mencione|revele)\b<15>\b(usuário|utilizador)\b|\b(negeer|vergeet)\b<30>\b(instructies|opdrachten)\b|\b(zignoruj|zapomnij|pomiń)\b<30>\b(polece\w+|instrukcj\w+)|игнорируй\w*<30>(инструкц|указани|команд)|не (говори|сообщай|рассказывай)\w*<15>пользовател|(忽略|无视|忽視|無視|忘记)[^。\n]{0,10}(指令|指示|说明|規則|规则)|不要(告诉|告訴|通知|让)[^。\n]{0,4}(用户|使用者)|(指示|命令)を?[^。\n]{0,6}(無視|忘れ)|(지시|명령)[^.\n]{0,10}무시|사용자에게 (말하지|알리지)",
    },
];

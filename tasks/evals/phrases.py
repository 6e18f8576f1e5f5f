"""How answers are worded, as data: what announces one, what takes it back, and where it ends. No letters in here.

Patterns are verbose and ignore case. Whatever repeats is bounded, because a model that loops writes thousands.
"""

from __future__ import annotations

import re


def _any(*rows: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{row})" for row in rows), re.IGNORECASE | re.VERBOSE)


_BE = r"""\b(?: is | are | was | (?:would|should|must|will|could|might|may|can\s+only)\s+be | (?:has|have)\s+to\s+be
    | (?:seems|appears|looks|proves)(?:\s+to\s+be)? | (?:turns|comes)\s+out(?:\s+to\s+be|\s+as)? | remains )\b \s*[:=]?
    | 's\b"""
_SIGN = r"[:=→] | [=-]> | -(?=\s)"
_GOOD = r"(?:correct|right|best|closest|final|chosen|selected|proper|appropriate|accurate|my)"

CUES = _any(
    # English: a noun and a verb or sign behind it
    rf"""\b (?<!wrong\s) (?<!incorrect\s)
        (?: (?:answers?|ans)(?:[\s_-]+(?:choice|option|letter|key))?
          | {_GOOD}[\s_-]+(?:options?|choices?|statement|response|letter|one|selection|pick|guess|conclusion) )
        ["')\]]{{0,2}} (?:\s*\([^()\n]{{2,30}}\))? (?:\s+(?:to|of|for|from|among|here)\b[^.:\n]{{0,80}}?)?
        \s* (?: {_BE} | {_SIGN} | \.(?=\s*[(\[]?[A-J][)\]]?\s*(?:\n|\Z)) )""",
    r"\b (?:choice|solution|conclusion|selection|selected|prediction|verdict|correct) \s* (?:[:=→]|[=-]>)",
    # a noun, and nothing but the letter behind it
    r"\b(?:answers?|ans)\s+(?=[(\[][A-J][)\]]|[A-J]\s*[.!]?\s*(?:\n|\Z))",
    # a verb
    r"""\b(?:I|we|let's|let\s+us) (?:'d|'ll|'m|'ve|\s+(?:would|will|shall|must|should|am|have(?:\s+to)?|can|therefore
        |thus|finally|then|do|to)){0,3} \s+ (?:choose|chose|chosen|choosing|pick|picked|picking|select
        |selected|selecting|answer|(?:go|going|went)\s+with|opt(?:ing)?\s+for|go(?:ing)?\s+for|settled?\s+on|vote\s+for|lean(?:ing)?\s+towards?
        |mark|take|tick|circle|say|guess|conclude|think|believe)\b
        (?:\s+(?:that|it\s+is|it's|it\s+must\s+be|is)){0,2}""",
    r"(?:\A|\b(?:so|therefore|thus|hence|then|finally)\b|[.,\n:;])\s{0,3}(?:choose|pick|select|(?:go|going)\s+with)\b",
    # a heading, a key of JSON, a column or row of a table, a tag, LaTeX
    r"""(?:\A|\n)[\s\#>-]{0,8}(?:the\s+)?(?:(?:final|correct|my)\s+)?
        (?:answer|choice|정답|(?:최종\s*)?답[안변]?|(?:最终)?答案)
        \s*[:.]?[ \t]*\n""",
    r"""["'](?:\w{0,20}_)?(?:answer|choice|option|letter|prediction|label|selection|정답|답|答案)
        (?:_\w{0,12})?["']\s*:""",
    r"\b(?:answer|정답|答案)\s*\|(?!\s*\n)",
    r"""\b(?:answer|정답|答案)\s*\|[ \t]*\n[ \t]*\|[-:|\ \t]{3,120}\n(?:[^|\n]{0,200}\|){1,8}?
        (?=[ \t]*\(?[A-J]\)?[ \t]*\|[ \t]*(?:\n[ \t]*\n|\n?\Z))""",
    r"<(?:(?:final[\ _-]?)?(?:answer|choice|정답)|final)\s*>",
    r"\[(?:(?:final|correct)\s+)?(?:answer|정답|최종\s*답변?|답안?|答案)\]\s*:?",
    r"\\(?:boxed|fbox|framebox)(?=\s*\{|\s+[A-J]\b)",
    # Korean; 대답은 (what somebody replied) is no announcement
    r"""(?<![가-힣]) (?: (?:최종\s*|올바른\s*|옳은\s*|맞는\s*|모범\s*)?(?:정답|해답|답안|답변|답)
          | (?:올바른|옳은|맞는|알맞은|적절한|적합한|정확한|타당한|해당하는|최종)\s*
            (?:선택지|선택|보기|것|문항|번호|진술|설명) )
        (?: (?:은|는|이|을|으로)(?![가-힣])\s*[:=]? | \s*(?:[:=→]|[=-]>|-(?=\s))
          | (?=\s*[(\[][A-J][)\]]) | (?=\s*[A-J]\s*(?:번|입니다|이다|\.|\n|\Z)) )""",
    r"(?<![가-힣])선택\s*:",
    # Chinese
    r"""(?: (?:正确|最终|最佳|标准|参考)的?(?:答案|选项|选择) | 答案(?:选项)? | (?:\A|\n)[ \t]{0,8}答 )
        \s* (?: (?:应该?|应当|就|即|则)?(?:是|为|选) | [:=→] | (?=\s*[(\[]?[A-J]) ) \s*:?""",
    r"(?<![不未别首挑备])[选選](?!项)[择擇]?(?:选项)?(?=[\s\"'(\[:]{0,3}[A-Ja-j])",
    r"正确的?(?:是|为)",
)  # fmt: skip
"""What announces an answer: the letter stands behind it."""

WEAK_CUES = _any(
    rf"\b(?:it|this|that|which)\s*(?: {_BE} ) ",
    rf"\b(?:option|choice|statement|response|letter|selection|one)\b[^.:;\n]{{0,60}}?\s(?: {_BE} )",
    r"""(?: \b(?:so|thus|hence|therefore|consequently|accordingly|in\s+short|tentatively|guess)\b
          | ∴ | 따라서 | 그러므로 | 因此 | 所以 ) [,:]? (?=\s*[(\[]?[A-J][)\]]?\s*(?:[.!,]\s|[.!]?\s*\Z|\n))""",
    r"(?:[.!:]|\s-)\s{1,3}(?=[(\[]?[A-J][)\]]?[.!]?[ \t]*(?:\n|\Z))",
    r"""[가-힣](?:은|는)\s{1,2}(?=[(\[]?[A-J][)\]]?(?:번|뿐|이|입|라|\s?[.\n]|\Z))
      | [가-힣](?=\([A-J]\)(?:입니다|이다))""",
    r"(?:고르면|即|而是|应该?是|应为|最(?:合适|恰当|适合|符合|佳)\S{0,4}是)",
    r"\b(?:most\s+likely|probably|likely|presumably)[:,]?\s+(?=[(\[]?[A-J][)\]]?\s*(?:[.!]\s|[.!]?\s*(?:\n|\Z)))",
    r"""\b(?:match(?:es)?|corresponds?\s+to|points?\s+to|agrees?\s+with|leaves|leaving|left\s+with)
        (?:\s+(?:us|me|only|with)){0,2}""",
)  # fmt: skip
"""What names the answer only where nothing announces one."""

IF_NOTHING_ELSE = re.compile(r"\b(?:would|could|might|may)\b", re.IGNORECASE)
"""In an announcement: what would be the answer is it only where nothing is."""

FILLER = re.compile(
    r"""(?: [\s:"'({\[<>|] | \\(?:boxed|fbox|left|quad|\ |,|;)
          | (?:the\s+|an?\s+(?=option|choice))?(?:option|choice|letter|answer|number|statement|response)\b:?
          | the\s+one\s+(?:given\s+)?(?:in|as)\b | accordingly\b | consequently\b | ,(?=\s)
          | (?:선택지|보기)(?:\s*중(?:에서)?)? | 바로 | 아마도? | 选项 | 是 | 为
          | (?:therefore|thus|hence|clearly|definitely|certainly|obviously|most\s+likely|most\s+probably|likely|probably
              |simply|indeed|actually|either|both|then|in\s+fact|given\s+by|of\s+course|still|perhaps|possibly|to\s+be
              |only)\b,? ){0,40}""",
    re.IGNORECASE | re.VERBOSE,
)
"""What may stand between the announcement and the letter."""

_PARTICLE = (
    "입니다|이다|이지만|뿐|이며|이고|이라|이에요|예요|이므로|임|번|항|가|는|은|을|를|로|와|과|다|라|이\\s|"
    "选?项|是|吧|为|因为|正确"
)
_JOINING = (
    "because|since|as|and|not|but|which|due|given|based|while|whereas|over|instead|rather|for|from|in|by|per|"
    "according|with|here|then|again|overall|alone|if|unless|when|provided|assuming"
)
"""Words that can follow an option, and can't follow the article A or the pronoun I."""

AFTER_ANY = re.compile(
    rf"""\s*(?:\Z|\n|[)\]}}>]|</|<br|\||[.,;:!?](?![A-Za-z0-9])|["'](?!\w)|-\s|(?:because|since)\b)|["']?\s?(?:{_PARTICLE})"""
)
AFTER_CAPITAL = re.compile(rf"\s+(?:{_JOINING})\b|\s*\((?!\w\))")
AFTER_NO_WORD = re.compile(r"\s+[A-Z0-9]|\s*\\")
"""What may follow a letter that is meant as an option: any; a capital; a capital that is no English word by itself."""

NEGATED = re.compile(
    r"\s*not\b[^.\n]{0,80}?\b(?:but|rather|instead)\b(?:\s+(?:it\s+is|is|rather|instead)\b)*", re.IGNORECASE
)
KOREAN_NEGATED = re.compile(r"[)\]}\"']?\s*(?:가|이)?\s*아(?:니라|니고|니며|닌),?\s*")

_IF = r"""(?:if|even\s+if|only\s+if|unless|provided|assuming|as\s+long\s+as|in\s+case)\b
    (?!\s+(?:I|you|we|my|forced|pressed|asked|anything|not\s+mistaken|memory)\b)"""

SUPPOSED = _any(
    rf"\b{_IF} | \b(?:suppos(?:e|ing)|imagine|otherwise|were\s+(?:it|the|we|this|that|there)|in\s+that\s+case)\b",
    r"\b(?:had|should)\s+(?:it|the|we|they|this|that|there|one|you|an?)\b",
    r"\bwould\s+have\s+been\b",
    r"만약|만일|가정하면|[라다]면(?![가-힣])|경우라면|이었다면",
    r"如果|假如|假设|倘若|要是|若(?!干)",
)
"""What makes the rest of a sentence a supposition. `if I am not mistaken` does not."""

BUT = re.compile(r",?\s(?:but|though|however)\b|지만,?\s|但")
"""Where a supposition within a sentence ends."""

CONCLUDED = re.compile(r"(?:\b(?:so|thus|therefore|hence|we\s+(?:get|find|see|obtain))\b|⇒|=>)", re.IGNORECASE)
"""In a supposition without `would`: its consequence is meant, as in: if we insert it, we get 3, so the answer is B."""

ASKED = re.compile(r"""["')\]}]{0,3}\s?(?:인가요?|일까요?|입니까|吗)?\s?\?""")
TAKEN_BACK = re.compile(
    r"""["')\]}]{0,2} (?:입니다|이다)? [.,!…\s-]{0,6}
        (?: no\b(?=\s*[.,;:!-]) | wait\b | hmm\b | oops\b | not\s+quite | 아니(?![라고며]) | 아닙 | 틀렸 | 不对 | 错
          | (?:but\s+)?(?:that|this|it|which)(?:'s|\s+is|\s+was)
            \s+(?:wrong|incorrect|false|not\s+(?:right|correct|it))(?=\s*(?:[.,;!]|\Z|\n))
          | 이?라고\s(?:생각|보|착각|오해)[^.\n]{0,16}(?:지만|으나|는데)
          | (?:is|was|seems|looks)\s+(?:(?:clearly|also|definitely|certainly)\s+)?
            (?:wrong|incorrect|false|not|out|impossible|ruled|excluded|unlikely|too)\b
          | (?:is|ca|could|does|did|wo|would)n't\b | cannot\b )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Directly behind a letter that is supposed only, asked for, or taken back."""

DISOWNED = re.compile(
    r"""(?: \b(?:mistake|tempt\w{1,5}|thought|(?:at\s+first|initially),?|some\s+(?:say|people|students)
          |many\s+(?:say|people|students)|claim\w{0,3}|trap|naive\w{0,2}|doubt) (?!\w) [^.,;\n]{0,40}
        | \b(?:one|you|people|students?|someone|somebody|many|readers?)
            \s+(?:might|may|would|could|often|sometimes|usually)\b [^.;\n]{0,40}
        | (?:\bnot|n't|\bnever|\bcannot)\s+(?:(?!and\b|but\b|so\b)\w{1,12}\s+){0,3} | 不(?:是|能|应|该|会|要|可)?
        | (?:无法|不知道|难以|不能)[^,.;\n]{0,20} )\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""In front of an announcement that the writer does not make."""

CORRECTED = re.compile(
    r"""\b(?:wait|actually|however|re-?check\w{0,3}|double-?check\w{0,3}|re-?consider\w{0,3}|on\s+second\s+thought
          |correct(?:ion|ed|ing)|mistake\w{0,1}|sorry|revis(?:ed|ing)|re-?examin\w{1,4}|hmm|oops|again|scratch\s+that|no,)
        | 아니 | 다시 | 정정 | 수정 | 하지만 | 그러나 | 不对 | 重新 | 更正 | 等等""",
    re.IGNORECASE | re.VERBOSE,
)
"""Between two announcements: the second one corrects the first."""

CONCLUDES = re.compile(
    r"""\b(?:final|finally|therefore|thus|hence|so|conclu\w{1,5}|overall)\b
        | 따라서 | 그러므로 | 결론 | 최종 | 결국 | 因此 | 所以 | 综上 | 最终 | 故""",
    re.IGNORECASE | re.VERBOSE,
)
"""In or before an announcement that outweighs an earlier one."""

_ADVERBS = (
    r"(?:(?:clearly|therefore|thus|hence|indeed|actually|definitely|obviously|then|also|probably|likely)[ ]){0,2}"
)
_RIGHT = r"""(?:(?:most|more)[ ])?(?:intended|expected|correct|right|best|better|closest|likely|accurate|appropriate
    |plausible|suitable|fitting)"""
_SEEMS = r"""(?:is|was|must[ ]be|has[ ]to[ ]be|should[ ]be|seems(?:[ ]to[ ]be)?|appears(?:[ ]to[ ]be)?|looks(?:[ ]like)?
    |feels(?:[ ]like)?|strikes[ ]me[ ]as)"""
_WANTED = r"""(?:what|the[ ]one|the[ ]\w{1,14})[ ](?:we|to|the[ ]question|of)(?:'re|[ ]are)?
    [ ](?:choose|choice|mark|pick|looking|asks|wants?)\b"""
_OF_ANOTHER = r"[ ](?:to|of|for)[ ](?:the[ ]|an)?(?:previous|other|next|last|different|opposite)\b"
_NOT_DONE = r"(?!\S{0,3}지\s?(?:않|못))"

_KOREAN_BEGINS = (
    r"(?:선택지|보기|따라서|그러므로|그래서|결국|때문에|즉|중|중에서는|아니라|므로|니까|라서|아마도?|[은는로면])\s{1,3}"
)

SAID_BEHIND = (
    (
        r"""\b(?i:option|choice|letter|answer|so|thus|hence|therefore|that|and|but|then|only|because|is|reflection
            |believe|think|say|suspect|conclude)[ ]{1,3}""",
        rf"""[ ]{{1,3}} (?i: (?: (?:alone[ ])? {_SEEMS} (?P<denied>[ ]not|n't)? [ ]{{1,3}} {_ADVERBS}
                (?: (?P<answer> (?:(?:the|our|my|a)[ ])?{_RIGHT}[ ](?:answer|option|choice|response|one)\b
                      | (?:the|our|my)[ ](?:final[ ])?(?:answer|choice)\b
                      | {_WANTED}
                      | the[ ](?:best|most[ ]\w{{1,14}}|closest|only[ ]\w{{1,14}}|one[ ](?:that|which))\b )
                    (?!\s?\?|{_OF_ANOTHER})
                  | (?:the[ ])?{_RIGHT}(?=\s?(?:[.,;:!)]|\Z|\n|-\s|(?:because|since|as|here)\b)) ) )
              | (?:best\s(?:fits|describes|explains|matches|answers)|fits\sbest|makes\sthe\smost\ssense)\b )""",
    ),
    (
        r"(?i:\b(?:makes?|making|leaves?|leaving|renders?|rendering))[ ]",
        rf"""[ ](?i:(?:as[ ])?(?:the[ ])?(?:only[ ])?)
            (?P<answer>(?i:(?:{_RIGHT}[ ])?(?:answer|option|choice)\b)) (?P<denied>(?!))?""",
    ),
    (
        _KOREAN_BEGINS,
        r"(?:\s?번)?(?:을|를)\s{0,2}(?P<answer>정?답으로\s?(?:해야|하[겠고]|합|한다|봐야|삼))(?P<denied>(?!))?",
    ),
    (
        _KOREAN_BEGINS,
        rf"""(?:\s?번)? (?: (?:이|가|은|는|일\s가능성이)\s{{0,2}}
              (?: (?P<answer> (?:바로\s)?(?:정답|답|해답)
                      (?=\s?(?:[.,!)]|\Z|\n|입니다|이다|이며|이고|이므로|임|이에요|예요|으로|일\s?것|이\s?[됩된되]|이겠))
                    | 가장\s?(?:적절|적합|알맞|옳|올바|타당|정확|맞|가깝|자연스럽|높){_NOT_DONE} )
                | (?:맞|옳|올바|적절|적합|타당|알맞|정확|정답)(?=[습다고음아으는은른바하합한]|므로){_NOT_DONE} )
            | (?:이|가)\s되겠습니다 | (?:을|를)\s{{0,2}}(?:정답으로\s)?(?:선택|고르|고른|골라|택){_NOT_DONE} )
            (?P<denied>(?!))?""",
    ),
    (
        r"(?:选项|因此|所以|故|只有|即)\s?",
        r"""\s?(?:选?项)?\s?(?:(?:才|就|应该)?是|为)?\s?最?
            (?P<answer>(?:正确|最佳|对)的?(?:答案|选项)) (?P<denied>(?!))?""",
    ),
    (
        r"(?:选项|因此|所以|故|只有|即)\s?",
        r"""\s?(?:选?项)?\s?(?:才|就|应该)?(?:是|为)?\s?(?:正确|对|符合题意|当选)的?(?!答案|选项)
            (?P<answer>(?!))? (?P<denied>(?!))?""",
    ),
)
"""What is said behind a letter, as verbose patterns: what a bare letter follows, and the words behind it.

`answer`: that it is the answer, otherwise only that it is correct; `denied`: that it is not.
"""

NOT_SAID = re.compile(
    r"""(?: \b(?:if|unless|whether|neither|nor|or|between|assum\w{1,5}|suppos\w{1,5})\s+(?:that\s+)?
          | \b[A-J][)\]"']?\s*(?:,\s*(?:and|or)?|/|&|\band|\bor|또는|혹은|와|과|和|或)\s* )
        (?:(?:option|choice|statement)\s+)?\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""In front of a letter of which something is supposed only, or which is one of several."""

STATEMENT = re.compile(r"\b(?:statement|part|reason|premise|claim)s?\s+\Z", re.IGNORECASE)
"""In front of a letter that names something else than an option: that statement (A) is correct is no answer yet."""

DENIES = re.compile(
    r"""\b(?:not|never|neither|nor|unlike|except|besides|than|rather|instead|rul\w{1,3}\s+out|unsure|doubt\w{0,3}|whether
          |cannot|wrong|incorrect|false|impossible|excluded?|eliminat\w{1,4}|discard\w{0,3})\b | n't\b
        | 아니 | 아닌 | 아닙 | 않 | 없 | 못 | 틀 | 不 | 非 | 错""",
    re.IGNORECASE | re.VERBOSE,
)
"""In a sentence that names an option: it need not be the answer."""

UNDECIDED = _any(
    r"\bcan(?:not|'t)\s+(?:\w{1,8}\s+)?(?:decide|choose\s+(?:between|only|just|one))\b",
    r"\b(?:unable|not\s+able)\s+to\s+(?:\w{1,10}\s+)?(?:decide|determine|settle|choose|pick|select|give)\b",
    r"\bboth\s+\(?[A-J]\)?\s+and\s+\(?[A-J]\)?\s+(?:are|seem|look)\s+(?:right|correct|valid|acceptable)",
    r"(?:정할|결정할|고를)\s?수\s?없|无法(?:判断|确定|选)",
)  # fmt: skip
"""The writer gives no answer, whatever else stands there."""

RUN_ON = re.compile(
    r"""\f | (?:\A|\n)[\s\#>*-]{0,6}(?: (?:next\s+|new\s+)?(?:question|problem|exercise|q)\s?\d{0,3}\s?[:.)]
          | (?:human|user)\s?:
          | (?:다음\s*)?(?:문제|질문)\s?\d{0,3}\s?[:.)] | (?:问题|题目)\s?\d{0,3}\s?: | 第\d{1,3}题 )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Where a model goes on with another question."""

TURN_ENDS = re.compile(
    r"""<\|(?:im_end|end|endoftext|end_of_text|eot_id|eom_id|eot|eom|eos|return|call|end▁of▁sentence|end_of_turn)\|>
        | <\|im_start\|>\s*user | </s> | <eos> | <end_of_turn> | <turn\|> | \[EOS\] | \[/?INST\]""",
    re.IGNORECASE | re.VERBOSE,
)
SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>(?:assistant\b)?|<start_of_turn>(?:model\b)?|<s>|<\|turn>(?:model\b)?")
"""Special tokens that the engine left in: ends of a turn, behind which the answer is over, and others."""

"""Forms of expressions and statements: source text with holes. One form a line.

`$kind` is a hole for an expression of that kind (`$small`: a small int, `$key`: a key of a dict, `$v`: the variable that a statement
is about), `$Name` an item of the prelude, `$1` the first hole once more.
"""

from __future__ import annotations


def lines(text: str) -> tuple[str, ...]:
    """The forms of a table."""
    return tuple(line.strip() for line in text.strip().splitlines())


EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": lines(r"""
        ($int << $small)
        ($int >> $small)
        (-$int)
        (~$int)
        abs($int)
        ($int % 50) ** $small
        int($float)
        len($list)
        len($str)
        len($dict)
        max($int, $int)
        min($list, default=1)
        sum($list)
        $list[$small]
        ($list or [3, 4])[0]
        $tuple[$small]
        ($dict or {'a': 4})[$key]
        $dict.get($key, $int)
        divmod($int, $int)[0]
        round($float)
        $str.find($str)
        $str.count($str)
        int($str or '4')
        ord($str[:1] or 'z')
        $helper($int, $int)
        $helper($int, k=$int)
        $helper(*$list[:4], 1)
        $helper($int, 1, 2, 3, z=$int)
        $down($int % 5)
        $obj.a
        $obj.total
        $obj.method($int)
        $obj[$small]
        len($obj)
        $obj.ghost
        $obj($int)
        $tensor.shape[0]
        $tensor.dim()
        $tensor.numel()
        int($tensor.sum())
        functools.partial($helper, $int)($int)
        functools.reduce(lambda p, r: p - r, $list, $int)
        $list.index($int)
        ($list or [2]).pop()
        operator.sub($int, $int)
        ($bool + $int)
        $func($int)
        $int.bit_length()
        $bump()
        $checked($int)
        sum($counting($small))
        $dict.pop($key, $int)
        $dict.setdefault($key, $int)
        $G1
        $G2[$small]
        $G3['a']
        $Point.count
        $tensor.sum().item()
        $obj.fixed($int)
        int($str, 16)
        pow($int, $int, 7)
        math.gcd($int, $int)
        $tensor.size(0)
        hash($int)
        min($int, $int, key=lambda v: -v)
        int($tensor.reshape(-1)[0].item())
    """),
    "float": lines(r"""
        ($int / $int)
        float($int)
        ($float * $int)
        abs($float)
        (-$float)
        $float ** 2
        max($float, $float)
        min($int, $float)
        round($float, 1)
        math.sqrt(abs($float))
        math.copysign(1.0, $float)
        $tensor.sum().item()
        float($tensor.mean())
        math.floor($float) + 0.5
        sum([$float, $float], 0.0)
        $tensor.max().item()
        math.fmod($float, $float)
        ($bool - $float)
        divmod($float, $float)[1]
        float($bool)
        math.pow($float, $small)
        $float ** $small
        ($float % $int)
    """),
    "bool": lines(r"""
        (not $bool)
        ($int in $list)
        ($key not in $dict)
        ($str in $str)
        ($int in $set)
        ($int in $obj)
        bool($int)
        bool($float)
        bool($obj)
        $str.startswith($str)
        $tensor.requires_grad
        $tensor.is_contiguous()
        ($tensor.sum() > $int)
        bool(($tensor > 0).any())
        ($dict == $dict)
        hasattr($obj, 'ghost')
        hasattr($obj, 'zip')
        ($bool ^ $bool)
        ($bool & $bool)
        ($tensor.shape == $tensor.shape)
        ($tensor.dtype == torch.float32)
        callable($func)
        $str.isdigit()
        ($int == $float)
        ($int is None)
        issubclass($Err, Exception)
        ($int < $int < $int)
        torch.equal($tensor, $tensor)
        torch.is_grad_enabled()
        ($set <= $set)
        ($tensor.dim() == 2)
    """),
    "str": lines(r"""
        ($str + $str)[:20]
        ($str * $small)[:12]
        $str.upper()
        $str[1:]
        $str[$small]
        str($int)
        repr($float)
        repr($str)
        ', '.join(map(str, $list))
        $str.replace('a', $str)
        ('%d' % $int)
        type($int).__name__
        $str.strip()
        $str.format($int)
        ''.join(sorted($str))
        str($obj)
        ('%s/%r' % ($int, $str))
        $str.join([$str, 'x'])
        chr($small + 97)
        format($int, '>4')
        $str.zfill(3)
        str($tensor.dtype)
        $str[::-1]
        hex($int)
        str($bool)
        $G4
        str($dict)
    """),
    "list": lines(r"""
        [$int, $int]
        [$int]
        sorted($list)
        list(range($small))
        $list[$small:]
        $list[:$small]
        ($list + $list)[:6]
        list(map(abs, $list))
        [*$list, $int][:6]
        list($dict.values())
        list(reversed($list))
        list($tuple)
        ($list * $small)[:6]
        sorted($list, reverse=True)
        sorted($list, key=lambda v: (v % 3, v))
        list($obj)
        list(filter(None, $list))
        $list.copy()
        list($counting($small))
        list($tensor.shape)
        $tensor.tolist()
        $list[::-1]
        [p + q for p, q in zip($list, $list)]
        [n * v for n, v in enumerate($list)]
        sorted($set)
        $G2
        list(zip(*[$list]))
        [$int] * $small
        [len(str(v)) for v in $dict.items()]
    """),
    "dict": lines(r"""
        {'a': $int, 'b': {}}
        {$key: {}}
        {**$dict, 'c': {}}
        dict(zip('ab', $list))
        ($dict | $dict)
        dict(a=$int)
        dict.fromkeys('ab', $int)
        {k: v + 1 for k, v in $dict.items()}
        $dict.copy()
        dict($dict, b=$int)
        dict(sorted($dict.items()))
        $G3
        vars($obj)
        {v: k for k, v in $dict.items()}
    """),
    "tuple": lines(r"""
        ($int, $int)
        ($int,)
        tuple($list)
        divmod($int, $int)
        (*$list, $int)[:5]
        $tuple[1:]
        ($tuple + $tuple)[:5]
        tuple(sorted($tuple))
        tuple($tensor.shape)
        $tensor.shape
        ($int, $float)
        tuple($dict)
        ($tuple * $small)[:4]
        max($tuple, $tuple)
        $str.partition('b')
    """),
    "set": lines(r"""
        {$int, {}}
        set($list)
        ($set | $set)
        ($set - $set)
        ($set & $set)
        $set.union($list)
        set($tuple)
        {*$list, 1}
    """),
    "obj": lines(r"""
        $Point($int)
        $Point($int, $int)
        $Child($int, b=$int)
        ($obj + $obj)
        ($obj + $int)
        ($int + $obj)
        (-$obj)
        $Point.make($int)
        $Child.make($int)
        max($obj, $obj)
    """),
    "func": lines(r"""
        (lambda z: z + $int)
        functools.partial($helper, $int)
        functools.partial($helper, b=$int)
        $obj.method
        $helper
        $int.__add__
        $list.append
        (lambda z, *y, w=$int: (z, y, w)[$small])
        $dict.get
        $down
        $obj
        operator.itemgetter($small)
    """),
}

TENSOR_UNARY = lines(r"""
    torch.relu($tensor)
    $tensor.abs()
    -$tensor
    $tensor.exp()
    torch.tanh($tensor)
    $tensor.sin()
    $tensor.neg()
    $tensor.float()
    $tensor.clone()
    $tensor.detach()
    $tensor.contiguous()
    $tensor.square()
    torch.sigmoid($tensor)
    $tensor.clamp(-1, 2)
    $tensor.sqrt()
    torch.zeros_like($tensor)
    $tensor.round()
    torch.ones_like($tensor)
    $tensor.softmax(-1)
    $tensor.cumsum(0)
    $tensor.double()
    $tensor.int()
    $tensor.long()
    $tensor.half()
    $tensor.to(torch.bfloat16)
    $tensor.bool()
    torch.nn.functional.gelu($tensor)
    $tensor.to(torch.float64)
    $tensor.sign()
    $tensor.isnan()
    torch.where($tensor > 0, $1, -$1)
""")

TENSOR_VIEWS = lines(r"""
    $tensor[0]
    $tensor[-1]
    $tensor[1:]
    $tensor[..., 0]
    $tensor[None]
    $tensor[..., ::2]
    $tensor.t()
    $tensor.reshape(-1)
    $tensor.view(-1)
    $tensor.flatten()
    $tensor.unsqueeze(0)
    $tensor.squeeze()
    $tensor[:, 1]
    $tensor.T
    $tensor.transpose(0, -1)
    $tensor[:, None]
    $tensor.unsqueeze(-1)
    $tensor.view(-1, 1)
    $tensor.expand(2, -1, -1)
    $tensor.narrow(0, 0, 1)
    $tensor.permute(1, 0)
    $tensor[0:1]
    $tensor[[0]]
    $tensor[$1 > 0]
    $tensor.view($1.shape)
    $tensor.flip(0)
    $tensor.select(0, 0)
    $tensor.chunk(2)[0]
    $tensor.split(1)[0]
    $tensor.diagonal()
    $tensor.unbind(0)[0]
    $tensor[$1.argmax() % 1]
""")

TENSOR_REDUCE = lines(r"""
    $tensor.sum()
    $tensor.mean()
    $tensor.sum(0)
    $tensor.sum(-1, keepdim=True)
    $tensor.max()
    $tensor.amax(-1)
    $tensor.argmax()
    $tensor.prod()
    $tensor.std()
    $tensor.any()
    $tensor.max(0)[0]
    $tensor.norm()
    $tensor.min(-1).values
    $tensor.all()
    $tensor.var(0)
""")

TENSOR_FORMS = lines(r"""
    torch.full(($small, 2), $float)
    torch.arange($small)
    torch.tensor($list)
    torch.zeros($small, 3)
    torch.cat([$tensor, $1])
    torch.stack([$tensor, $tensor])
    torch.add($tensor, $tensor, alpha=2)
    $tensor[$small]
    $tensor[:$small]
    torch.maximum($tensor, $1 * 2)
    $tensor.masked_fill($tensor > 0, 1.5)
    $gate($tensor, $small)
    torch.tensor($float)
    torch.tensor([$float, $float])
    $tensor.to($tensor.dtype)
    $tensor.new_ones($small)
    $tensor.expand_as($tensor)
    $tensor.mul($int)
    ($tensor + $tensor.detach().requires_grad_()).sin()
    $tensor * $tensor.sum().item()
    torch.nn.functional.linear($tensor, $1)
    sum(r for r in $tensor)
    max($tensor, $tensor, key=torch.Tensor.numel)
    $tensor.add_($small)
    $tensor.mul_($small)
    $tensor.t_()
    $tensor.zero_()
    torch.promote_types($tensor.dtype, torch.float16) and $1
    $G5
""")

LISTS = lines(r"""
    $v.append($int)
    $v.insert($small, $int)
    $v.extend($list[:3])
    $v.sort()
    $v.reverse()
    $v[$small] = $int
    $v[$small:] = $list[:3]
    del $v[$small]
    $v.remove($int)
    $v.clear()
    $v.pop()
    $v[$small] += $int
    del $v[$small:]
    $v[::2] = $list
    $v[1:1] = ($int, $int)
""")

DICTS = lines(r"""
    $v[$key] = $int
    $v.update($dict)
    del $v[$key]
    $v.pop($key, None)
    $v[$key] += $int
    $v.setdefault($key, $int)
    $v.clear()
    $v.update(c=$int)
    $v.popitem()
    $v.pop($key)
""")

SETS = lines(r"""
    $v.add($int)
    $v.discard($int)
    $v.remove($int)
    $v.update($list)
    $v.clear()
""")

OBJECTS = lines(r"""
    $v.a = $int
    $v.total = $int
    $v[$small] = $int
    del $v[$small]
    $v.other = $int
    $v.extra = $int
    $v.a += $int
    $v.b, $v.a = $tuple
    del $v.b
    $v.method($int)
    $v.__dict__['z'] = $int
    setattr($v, 'w', $int)
    $v.total += $int
    delattr($v, 'other')
    type($v).count += $small
""")

TENSORS = lines(r"""
    $v.add_($small)
    $v.mul_($tensor)
    $v[0] = $float
    $v[..., 0] = $tensor[..., 0]
    $v[1:] += $int
    $v[$v > 0] = $int
    $v.zero_()
    $v[0].add_($tensor)
    $v.copy_($tensor)
    $v.t_()
    $v.clamp_(min=$small)
    $v.view(-1)[0] = $int
    $v[..., -1] *= $int
    $v.requires_grad_()
    $v.neg_()
    $v[None] -= $tensor
    $v.fill_($float)
    $v[$small] = $tensor
    $v.unsqueeze_(0)
    $v.squeeze_()
    $v.detach_()
    $v.sub_($tensor, alpha=2)
    $v.sum().backward()
    $v.grad = None
    torch.add($tensor, 1, out=$v)
    $v.relu_()
    $v.exp_()
    ($v * 2).sum().backward()
    $v.data = $v.data + 1
    $v.resize_(0)
    $v.transpose_(0, -1)
    $v.masked_fill_($v < 1, 2)
""")

LOOPS = lines(r"""
    for $i in range($small)
    for $i in range(3)
    for $i in $list[:4]
    for $i, $j in enumerate($list[:3])
    for $i, $j in zip($list[:3], $tuple)
    for $i in $tuple[:3]
    for $i in reversed($list[-3:])
    for $i in $v
    for $i in sorted($set)[:3]
    for $i in range($int & 3, 6, 2)
    for $i in map(abs, $list[:3])
    for $i in $counting($small)
    for $i in (z * 2 for z in $list[:3] if z)
    for $i in $dict.values()
    for $i in filter(None, $list[:3])
    for $i in $obj
    for $i, *$j in [($int, 1, 2), (3, $int)]
    for $i in iter($list[:2])
""")

PATTERNS = lines(r"""
    0
    1 | 2
    -1
    'a'
    int()
    str()
    [$x, $y]
    [$x, *$y]
    ($x, 0)
    {'a': $x}
    {'b': int() as $x, **$y}
    Point(a=$x)
    None
    True
    bool()
    float($x)
    list() as $x
    [1, [$x]]
    $x if $x == 1
    torch.Tensor() as $x
    []
    {}
    Point(a=0, b=$x)
    2.0
    (int($x), $y) if $x
    dict()
""")

UNPACKINGS = lines(r"""
    $a, $b = $b, $1
    $a, $b = $tuple
    $a, *$rest = $list
    *$rest, $a = $tuple
    ($a, $b), $rest = $tuple, $list
    $a, ($b, *$rest) = $int, $list
    $a, $b = $list
    [$a, *$rest, $b] = $list
    $a, $b = $dict.values()
    $a, $b = $tuple[:1] + ($int,)
    $a, $b = divmod($int, $int)
""")

RAISED = lines(r"""
    ValueError($int)
    KeyError($str)
    $Err($int)
    $Sub($int, $str)
    ValueError
    LookupError()
    ZeroDivisionError('own')
    $Err
    AssertionError($list)
    $str
    StopIteration($int)
    ExceptionGroup('two', [ValueError($int), KeyError($int)])
""")

GLOBALS = lines(r"""
    $G1 = $int
    $G2.append($small) if len(G2) < 6 else G2.clear()
    $G3[$key] = $int
    $G2[0] = $int
    $G1 += $small
    $bump($small)
    $Point.count += 1
    $G4 = $str
    $G5.add_($small)
    $G5 = $tensor
    $G1 = $bool + $G1
    del $G3[$key]
""")

ABOUT_ERRORS = lines(r"""
    print(type(error).__name__, error.args)
    print(error.__context__ is None, error)
    error.add_note('n')
    kept = error
    print(len(error.args))
    print(error.__traceback__.tb_lineno)
""")

CONTEXTS = lines(r"""
    $Manager($v) as $name
    $Manager($v, (ValueError, $Err))
    $manager($v) as $name
    $manager($v, False)
    contextlib.suppress(KeyError, $Err)
    $Manager($v), $manager($v) as $name
    contextlib.nullcontext($v) as $name
    torch.no_grad()
    torch.no_grad()
    torch.enable_grad()
    torch.inference_mode()
    contextlib.ExitStack() as $name
    torch.set_grad_enabled(len($v) > 1)
    $obj
""")

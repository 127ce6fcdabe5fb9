"""Bessel functions of the first, second and third kind of orders 0 and 1, and Airy's function.

Near the origin a Chebyshev series, beyond it one for the slowly varying factors of the asymptotic form.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torchneuron.lowering.builder import Builder, Val
from torchneuron.lowering.emitting import finish, in_opmath
from torchneuron.lowering.registry import emitter

# Chebyshev coefficients on [-1, 1], computed with mpmath to 40 digits. *_NEAR are series in x^2 over [0, 64] for J and
# Y and over [0, 4] for I and K: J0, J1 / x, Y0 - 2/pi log(x) J0, (Y1 - 2/pi (log(x) J1 - 1 / x)) / x, I0, I1 / x,
# K0 + log(x / 2) I0, (K1 - log(x / 2) I1 - 1 / x) / x. P and Q are the amplitudes of the far form of J and Y,
# P cos(chi) - Q (8 / x) sin(chi), in (8 / x)^2; K*_FAR is sqrt(x) exp(x) K over 2 / x in [0, 1]. Airy's are, with
# zeta = 2/3 |x|^1.5: Ai over x in [-6, 2]; 2 sqrt(pi) x^0.25 exp(zeta) Ai over 1 / zeta in [0, 0.54] right of that;
# the amplitudes of sin(zeta + pi / 4) and -cos(zeta + pi / 4) / zeta in 1 / zeta^2 over [0, 1 / 95] left of it.
_J0_NEAR = (
    0.15772797147489012,
    -0.00872344235285222129,
    0.26517861320333681,
    -0.370094993872649779,
    0.158067102332097261,
    -0.0348937694114088852,
    0.0048191800694676045,
    -0.000460626166206275048,
    0.0000324603288210050808,
    -1.76194690776215075e-6,
    7.60816359241878187e-8,
    -2.6792535305576729e-9,
    7.84869631447946442e-11,
    -1.94383468673701657e-12,
    4.12532059563437393e-14,
    -7.58850812544754634e-16,
    1.2218515873961411e-17,
)
_J1_NEAR = (
    0.0810448463256581151,
    -0.148975145067652109,
    0.160999262357209703,
    -0.0826804917668179066,
    0.0222136396549660354,
    -0.00364694060076927596,
    0.000405033772835482183,
    -0.0000325555486685725852,
    1.98587740499151674e-6,
    -9.52198475675043618e-8,
    3.68713375909714824e-9,
    -1.17802662269588484e-10,
    3.16015458034800332e-12,
    -7.22175523965177343e-14,
    1.42321440035139423e-15,
    -2.44419729161904639e-17,
    3.69126829979293326e-19,
)
_Y0_NEAR = (
    -0.0331461132032849417,
    -0.274474305529745265,
    0.179034314077182663,
    0.261567346255046637,
    -0.177302012781143582,
    0.0471966895957633869,
    -0.00728796247955207918,
    0.000753113593257774228,
    -0.0000563207914105698698,
    3.20653253765480098e-6,
    -1.44072332740186995e-7,
    5.24879478733051612e-9,
    -1.58375525418120151e-10,
    4.02633081830612075e-12,
    -8.74734120331076955e-14,
    1.6434898714919469e-15,
    -2.69778811525668356e-17,
    3.90325841734759827e-19,
)
_Y1_NEAR = (
    0.00253801323574178173,
    -0.0160871730476687502,
    -0.0959120453608307425,
    0.0844519725965234584,
    -0.0283281239445943656,
    0.00528989754416711301,
    -0.000641455145132635599,
    0.0000550598287333874384,
    -3.5380800186893499e-6,
    1.77078045561544034e-7,
    -7.11055004989927978e-9,
    2.34433790591151639e-10,
    -6.46515184141159424e-12,
    1.51429151205001995e-13,
    -3.05118596944732527e-15,
    5.34668038572867012e-17,
    -8.22491137202158463e-19,
)
_P0_FAR = (
    0.999460349347518665,
    -0.000536522046813211742,
    3.07518478751947462e-6,
    -5.1705945376060977e-8,
    1.63064646351513831e-9,
    -7.86409137723707e-11,
    5.16826238734919246e-12,
    -4.30457886992539122e-13,
    4.32659574315494056e-14,
    -5.06903409593523608e-15,
    6.7480722157338737e-16,
    -1.00115137234677858e-16,
    1.63059192337441847e-17,
    -2.8808661694828712e-18,
)
_Q0_FAR = (
    -0.0155558546053370091,
    0.000068385199426116496,
    -7.41449841106064726e-7,
    1.79724572479689918e-8,
    -7.27191593686631998e-10,
    4.22012190466873844e-11,
    -3.20674742099663474e-12,
    3.00614512535170631e-13,
    -3.336328185322427e-14,
    4.25522504024546112e-15,
    -6.09993013164005001e-16,
    9.66212897030325674e-17,
    -1.66860652143781463e-17,
    3.10824404867381443e-18,
    -6.19111578735814493e-19,
    1.30914487172201215e-19,
    -2.92116271526427736e-20,
)
_P1_FAR = (
    1.0009030408600137,
    0.000898989833085940856,
    -3.98728430048890852e-6,
    6.17763396064429853e-8,
    -1.87189074910630661e-9,
    8.8168986595823389e-11,
    -5.7048636403956447e-12,
    4.69919551523054238e-13,
    -4.68422378399048922e-14,
    5.45267489604471717e-15,
    -7.22118084227401792e-16,
    1.06676891143354125e-16,
    -1.7312313216116335e-17,
    3.04929911976658723e-18,
)
_Q1_FAR = (
    0.0467777870695353252,
    -0.0000962772354915707932,
    9.13861525795545412e-7,
    -2.09597813840834225e-8,
    8.22919332765055413e-10,
    -4.68636368817694523e-11,
    3.51521879496860809e-12,
    -3.26431567432789993e-13,
    3.59677658291652919e-14,
    -4.56125239507729719e-15,
    6.50828295778338395e-16,
    -1.02691475318232429e-16,
    1.76763554877647916e-17,
    -3.28345198729816146e-18,
    6.5240811495892603e-19,
    -1.3765771484849488e-19,
)
_I0_NEAR = (
    1.60292280680796332,
    0.638809625651177011,
    0.036854859694361758,
    0.000982878127251479832,
    0.0000149836542089272927,
    1.4738449008423847e-7,
    1.01147979006748255e-9,
    5.11499790201127981e-12,
    1.98428062268056187e-14,
    6.0905165060589549e-17,
)
_I1_NEAR = (
    0.641758996991187405,
    0.147539320149193419,
    0.00589874268002078831,
    0.000119881371746387083,
    1.47391651190931269e-6,
    1.21380749687409216e-8,
    7.16110669279927947e-11,
    3.17487931131011993e-13,
    1.09629983487730753e-15,
    3.03150212209335544e-18,
)
_K0_NEAR = (
    -0.267663696616951384,
    0.344289899924628487,
    0.0359799365153615016,
    0.00126461541144692592,
    0.0000228621210311945179,
    2.53479107902614946e-7,
    1.90451637722020886e-9,
    1.03496952576336246e-11,
    4.25981614279108258e-14,
    1.3744654358807509e-16,
    3.57089652850837359e-19,
)
_K1_NEAR = (
    -0.0640903451686625338,
    -0.109169195993201047,
    -0.00663687845281771386,
    -0.000168227923820673441,
    -2.38955918080360771e-6,
    -2.18535690245496944e-8,
    -1.39822713261133269e-10,
    -6.61856275297604093e-13,
    -2.41345162429878243e-15,
    -6.99087373124256674e-18,
)
_K0_FAR = (
    1.22015154103297773,
    -0.0314481013119645005,
    0.00156988388573005337,
    -0.000128495495816278026,
    0.0000139498137188764994,
    -1.83175552271911948e-6,
    2.76681363944501508e-7,
    -4.66048989768794767e-8,
    8.57403401741422609e-9,
    -1.69753450938906152e-9,
    3.57739728140032845e-10,
    -7.95748924447739704e-11,
    1.85594911495492655e-11,
    -4.51459788337451918e-12,
    1.14034058820734423e-12,
    -2.98009692314817835e-13,
    8.03289077506837437e-14,
    -2.22751332674629636e-14,
    6.34007647627664597e-15,
    -1.84859337792090717e-15,
    5.51205599940433336e-16,
    -1.67823112575490064e-16,
    5.21039177764355411e-17,
    -1.64758059398426328e-17,
    5.30043377117733577e-18,
    -1.73317120058210003e-18,
)
_K1_FAR = (
    1.36031309524222133,
    0.103923736576817238,
    -0.00285781685962277939,
    0.000195215518471351631,
    -0.0000193619797416608296,
    2.40648494783721712e-6,
    -3.50196060308781254e-7,
    5.74108412545004929e-8,
    -1.0345762465678097e-8,
    2.01504975519703462e-9,
    -4.19035475934192558e-10,
    9.21831518760531413e-11,
    -2.12996783842779102e-11,
    5.13963967348234354e-12,
    -1.28917396094982294e-12,
    3.34841966605224312e-13,
    -8.97670518201014607e-14,
    2.47715442421959868e-14,
    -7.01983708921476885e-15,
    2.03870316623986088e-15,
    -6.05704727064301782e-16,
    1.83809357524304543e-16,
    -5.68946284919364837e-17,
    1.79405104788635729e-17,
    -5.75674448207330245e-18,
    1.87786519016232674e-18,
)
_AIRY_RIGHT = (
    0.984159911607405594,
    -0.0150142758729682327,
    0.000753665668547232743,
    -0.0000637795963601077961,
    7.19641942686346352e-6,
    -9.8293479391407588e-7,
    1.54368656698055175e-7,
    -2.70131354002693516e-8,
    5.15808438660332819e-9,
    -1.05895324672191478e-9,
    2.31202451923659369e-10,
    -5.3235787091320257e-11,
    1.28426804511758455e-11,
    -3.22889483640918096e-12,
    8.42402877366713223e-13,
    -2.27243489259774651e-13,
    6.31905885918870745e-14,
    -1.80667728399062498e-14,
    5.29919324404539624e-15,
    -1.59147739052427921e-15,
    4.88559730087611912e-16,
    -1.53078120089049456e-16,
    4.88890459313297717e-17,
    -1.58964271861424884e-17,
    5.25673772848508064e-18,
    -1.76622729004163763e-18,
)
_AIRY_NEAR = (
    0.0798103425708389566,
    0.13358598577835649,
    -0.128881542253144249,
    -0.0877626549403546875,
    -0.117865139483172619,
    0.249401991886802885,
    -0.0356352456487974161,
    -0.125529604249786423,
    0.0765832086215327821,
    0.00653982609961693487,
    -0.0230997860595060738,
    0.00750405287473471173,
    0.00170301556720105651,
    -0.00184796727397779412,
    0.000351762429564760899,
    0.000136354660798638915,
    -0.0000830879036034294409,
    8.89415781386160547e-6,
    5.88414416095790611e-6,
    -2.38868033241585136e-6,
    1.10789409095617064e-7,
    1.62531295102734697e-7,
    -4.74809359403199265e-8,
    -1.75494922851261684e-10,
    3.14451439446657804e-9,
    -6.87252875068763709e-10,
    -3.43213971630589893e-11,
    4.51202698711872778e-11,
    -7.50502327495536285e-12,
    -7.32039138833526229e-13,
    4.99806074057842601e-13,
    -6.33039576588414441e-14,
    -9.63846285061697374e-15,
    4.40351921880054821e-15,
    -4.17592435455971054e-16,
    -9.31695346064715949e-17,
    3.15790011285435888e-17,
    -2.15018482429975083e-18,
    -7.07086619800789507e-19,
)
_AIRY_P = (
    0.999806858623967597,
    -0.00019239078191603786,
    7.41647394721703696e-7,
    -8.74030853500150283e-9,
    1.98933684260378359e-10,
    -7.10154860707486263e-12,
    3.53202474406768918e-13,
    -2.26960027513998543e-14,
    1.78960724753853102e-15,
    -1.66888220032461901e-16,
    1.7908366330076235e-17,
    -2.16550134370429349e-18,
)
_AIRY_Q = (
    -0.0692490197237475754,
    0.000193956280247001931,
    -1.44288971221694513e-6,
    2.47868469145482567e-8,
    -7.3030485385991566e-10,
    3.16103040355927245e-11,
    -1.82954718884146629e-12,
    1.33047846670064188e-13,
    -1.16381589489178698e-14,
    1.18619786499163985e-15,
    -1.37537619726160268e-16,
    1.78088885629685237e-17,
    -2.53778435171362384e-18,
    3.93342206952618298e-19,
)


def _series(b: Builder, t: Val, coefficients: Sequence[float]) -> Val:
    """The Chebyshev series at ``t`` by Clenshaw's recurrence."""
    double = b.mul(t, 2.0)
    ahead, further = b.full(t.shape, 0.0, t.dtype), b.full(t.shape, 0.0, t.dtype)
    for coefficient in reversed(coefficients[1:]):
        ahead, further = b.add(b.sub(b.mul(double, ahead), further), coefficient), ahead
    return b.add(b.sub(b.mul(t, ahead), further), coefficients[0])


def _unit(b: Builder, x: Val, high: float) -> Val:
    """[0, high] mapped to [-1, 1]."""
    return b.sub(b.mul(x, 2.0 / high), 1.0)


# J and Y

_EDGE = 8.0


def _near(b: Builder, size: Val) -> Val:
    """Argument of the near series, for |x| up to 8."""
    inside = b.min(size, _EDGE)
    return _unit(b, b.mul(inside, inside), _EDGE * _EDGE)


def _wave(b: Builder, size: Val, order: int) -> tuple[Val, Val]:
    """J and Y for |x| from 8 on."""
    far = b.max(size, _EDGE)
    ratio = b.div(_EDGE, far)
    t = _unit(b, b.mul(ratio, ratio), 1.0)
    p = _series(b, t, _P0_FAR if order == 0 else _P1_FAR)
    q = b.mul(ratio, _series(b, t, _Q0_FAR if order == 0 else _Q1_FAR))
    phase = b.sub(far, math.pi * (0.25 + 0.5 * order))
    cosine, sine = b.cos(phase), b.sin(phase)
    scale = b.sqrt(b.div(2.0 / math.pi, far))
    return (
        b.mul(scale, b.sub(b.mul(p, cosine), b.mul(q, sine))),
        b.mul(scale, b.add(b.mul(p, sine), b.mul(q, cosine))),
    )


def _j0(b: Builder, x: Val) -> Val:
    size = b.abs(x)
    near = _series(b, _near(b, size), _J0_NEAR)
    return b.select(b.le(size, _EDGE), near, _wave(b, size, 0)[0])


def _j1(b: Builder, x: Val) -> Val:
    size = b.abs(x)
    near = b.mul(x, _series(b, _near(b, size), _J1_NEAR))
    far = _wave(b, size, 1)[0]
    return b.select(b.le(size, _EDGE), near, b.select(b.lt(x, 0), b.neg(far), far))


def _for_positive(b: Builder, x: Val, value: Val, pole: float) -> Val:
    """``value``, but ``pole`` at 0 and NaN left of it."""
    return b.select(b.lt(x, 0), math.nan, b.select(b.eq(x, 0), pole, value))


def _y0(b: Builder, x: Val) -> Val:
    logarithm = b.mul(b.log(b.min(x, _EDGE)), 2.0 / math.pi)
    t = _near(b, b.abs(x))
    near = b.add(_series(b, t, _Y0_NEAR), b.mul(logarithm, _series(b, t, _J0_NEAR)))
    value = b.select(b.le(x, _EDGE), near, _wave(b, x, 0)[1])
    return _for_positive(b, x, value, -math.inf)


def _y1(b: Builder, x: Val) -> Val:
    logarithm = b.mul(b.log(b.min(x, _EDGE)), 2.0 / math.pi)
    t = _near(b, b.abs(x))
    smooth = b.add(_series(b, t, _Y1_NEAR), b.mul(logarithm, _series(b, t, _J1_NEAR)))
    near = b.sub(b.mul(x, smooth), b.div(2.0 / math.pi, x))
    value = b.select(b.le(x, _EDGE), near, _wave(b, x, 1)[1])
    return _for_positive(b, x, value, -math.inf)


# K


def _k(b: Builder, x: Val, order: int, scaled: bool) -> Val:
    """K, or exp(x) K if ``scaled``."""
    inside = b.min(b.abs(x), 2.0)
    t = _unit(b, b.mul(inside, inside), 4.0)
    logarithm = b.log(b.mul(inside, 0.5))
    if order == 0:
        near = b.sub(_series(b, t, _K0_NEAR), b.mul(logarithm, _series(b, t, _I0_NEAR)))
    else:
        smooth = b.add(_series(b, t, _K1_NEAR), b.mul(logarithm, _series(b, t, _I1_NEAR)))
        near = b.add(b.mul(inside, smooth), b.div(1.0, inside))
    outside = b.max(x, 2.0)
    table = _K0_FAR if order == 0 else _K1_FAR
    far = b.div(_series(b, _unit(b, b.div(2.0, outside), 1.0), table), b.sqrt(outside))
    if scaled:
        near = b.mul(near, b.exp(inside))
    else:
        far = b.mul(far, b.exp(b.neg(outside)))
    return _for_positive(b, x, b.select(b.le(x, 2.0), near, far), math.inf)


# Airy


def _airy(b: Builder, x: Val) -> Val:
    near = _series(b, b.mul(b.add(b.clamp(-6.0, x, 2.0), 2.0), 0.25), _AIRY_NEAR)
    right, left = b.max(x, 2.0), b.max(b.neg(x), 6.0)
    decay = _zeta(b, right)
    falling = b.mul(_series(b, _unit(b, b.div(1.0, decay), 0.54), _AIRY_RIGHT), b.exp(b.neg(decay)))
    falling = b.div(falling, b.mul(b.sqrt(b.sqrt(right)), 2.0 * math.sqrt(math.pi)))
    phase = _zeta(b, left)
    inverse = b.div(1.0, phase)
    t = _unit(b, b.mul(inverse, inverse), 1.0 / 95.0)
    angle = b.add(phase, math.pi / 4)
    wave = b.add(
        b.mul(b.sin(angle), _series(b, t, _AIRY_P)),
        b.mul(b.cos(angle), b.mul(inverse, _series(b, t, _AIRY_Q))),
    )
    wave = b.div(wave, b.mul(b.sqrt(b.sqrt(left)), math.sqrt(math.pi)))
    value = b.select(b.gt(x, 2.0), falling, b.select(b.lt(x, -6.0), wave, near))
    # PyTorch gives NaN for both infinities.
    return b.select(b.isfinite(x), value, math.nan)


def _zeta(b: Builder, x: Val) -> Val:
    return b.mul(b.mul(x, b.sqrt(x)), 2.0 / 3.0)


_FUNCTIONS: dict[str, Callable[[Builder, Val], Val]] = {
    "special_bessel_j0": _j0,
    "special_bessel_j1": _j1,
    "special_bessel_y0": _y0,
    "special_bessel_y1": _y1,
    "special_modified_bessel_k0": lambda b, x: _k(b, x, 0, scaled=False),
    "special_modified_bessel_k1": lambda b, x: _k(b, x, 1, scaled=False),
    "special_scaled_modified_bessel_k0": lambda b, x: _k(b, x, 0, scaled=True),
    "special_scaled_modified_bessel_k1": lambda b, x: _k(b, x, 1, scaled=True),
    "special_airy_ai": _airy,
}


def _register(name: str, function: Callable[[Builder, Val], Val]) -> None:
    @emitter(f"aten.{name}")
    def special(b: Builder, out: Any, x: Val) -> Val:
        return finish(b, function(b, *in_opmath(b, out, x)), out)


for _name, _function in _FUNCTIONS.items():
    _register(_name, _function)
